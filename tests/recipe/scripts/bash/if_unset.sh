if [ -z "$NNODES" ]; then NNODES=2; fi
if [ -n "${DEBUG:-}" ]; then X=debug; else X=plain; fi
[ "$USE_KL" = true ] && KL=1 || KL=0
[[ -v NOT_SET ]] && Y=1 || Y=0
python3 -m verl.trainer.main_ppo nnodes=$NNODES x=$X kl=$KL y=$Y
