M=Qwen/Qwen3-8B-Base
python3 -m verl.trainer.main_ppo a=${M/\//_} b=${M//-/_} c=${M/#Qwen/X} d=${M/%Base/Y} e=${M//[0-9]/} f=${M//n?/+}
