N=$(nvidia-smi -L | wc -l)
python3 -m verl.trainer.main_ppo trainer.n_gpus_per_node=$N world=$((N * 2)) run-$(date +%s)
