MODEL=qwen3-8b
case "$MODEL" in
  qwen2*) TP=1 ;;
  qwen3-8b | qwen3-14b) TP=2 ;;
  *) TP=8 ;;
esac
python3 -m verl.trainer.main_ppo tp=$TP
