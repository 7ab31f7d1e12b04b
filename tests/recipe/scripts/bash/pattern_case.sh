M=Qwen3-Base
python3 -m verl.trainer.main_ppo a=${M,,} b=${M^^} c=${M,} d=${M^} e=${M^^[a-e]}
