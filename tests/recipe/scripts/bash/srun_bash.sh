srun --nodes=2 --ntasks-per-node=1 bash -c 'echo start; python3 -m verl.trainer.main_ppo a=1'
