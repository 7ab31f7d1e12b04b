mapfile -t ROWS <<< $'a=1\nb=2'
readarray -t MORE < <(true)
python3 -m verl.trainer.main_ppo "${ROWS[@]}"
