python3 -m verl.trainer.main_ppo a=1#no b="# no" c=#no # yes d=1
# python3 -m verl.trainer.main_ppo never
