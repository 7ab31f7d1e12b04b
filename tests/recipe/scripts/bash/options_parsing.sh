TP=2
while [[ $# -gt 0 ]]; do
  case $1 in
    --tp) TP=$2; shift 2 ;;
    *) EXTRA+=("$1"); shift ;;
  esac
done
python3 -m verl.trainer.main_ppo tp=$TP "${EXTRA[@]}"
