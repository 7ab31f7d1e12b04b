DEVICE=${DEVICE:-$(python3 -c 'import torch_npu' 2>/dev/null && echo npu || echo gpu)}
case "$DEVICE" in
  gpu) TP=2 ;;
  npu) TP=4 ;;
  *) exit 1 ;;
esac
python3 -m verl.trainer.main_ppo tp=$TP device=$DEVICE
