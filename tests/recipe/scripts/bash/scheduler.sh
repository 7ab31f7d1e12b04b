NNODES=${SLURM_NNODES:-1}
[ "$NNODES" -gt 1 ] && MULTI=1
python3 -m verl.trainer.main_ppo trainer.nnodes=$NNODES a.b=1
