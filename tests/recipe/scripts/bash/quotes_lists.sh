python3 -m verl.trainer.main_ppo trainer.logger='["console","wandb"]' a=["x","y"] "b=['p', 'q']" c=\[1,2\] d={} e=[]
