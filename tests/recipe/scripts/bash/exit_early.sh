python3 -m verl.trainer.main_ppo a=1
exit 0
python3 -m verl.trainer.main_ppo never=1
