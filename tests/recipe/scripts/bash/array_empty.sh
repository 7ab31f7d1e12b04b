A=()
python3 -m verl.trainer.main_ppo "${A[@]}" "x=${A[*]}" ${A[@]:-none} n=${#A[@]}
