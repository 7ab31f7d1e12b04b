python3 -m verl.trainer.main_ppo stage=1 && python3 -m verl.trainer.main_ppo stage=2
python3 -m verl.trainer.main_ppo stage=3 || python3 -m verl.trainer.main_ppo never=1
