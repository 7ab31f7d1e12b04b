printf -v NAME '%s_%s_%d' grpo qwen 8
printf -v PAD '%05.2f|%-4s|%x' 3.14159 ab 255
python3 -m verl.trainer.main_ppo name=$NAME "pad=$PAD"
