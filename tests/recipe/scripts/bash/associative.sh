declare -A SIZE=([small]=1 [large]=8)
SIZE[huge]=64
K=large
python3 -m verl.trainer.main_ppo a=${SIZE[$K]} b=${SIZE[huge]} c=${SIZE[none]:-0} n=${#SIZE[@]}
