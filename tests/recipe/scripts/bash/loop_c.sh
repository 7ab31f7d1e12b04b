for ((i = 0; i < 3; i++)); do python3 -m verl.trainer.main_ppo i=$i; done
python3 -m verl.trainer.main_ppo last=$i
