torchrun --standalone --nnodes=1 --nproc-per-node=${NPROC:-8} -m verl.trainer.sft_trainer data.a=1
