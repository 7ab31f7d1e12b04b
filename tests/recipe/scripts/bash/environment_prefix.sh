A=old
A=new B=2 python3 -m verl.trainer.main_ppo a=$A
HYDRA_FULL_ERROR=1 CUDA_VISIBLE_DEVICES=0,1 python3 -u -m verl.trainer.main_ppo b=${B:-none}
