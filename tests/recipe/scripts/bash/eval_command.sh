CMD="python3 -m verl.trainer.main_ppo data.a=1"
CMD="$CMD data.b='x y'"
eval "$CMD" "c=\$CMD"
$CMD
