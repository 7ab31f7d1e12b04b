ARR=(one two three)
ARR[5]=six
ARR+=(seven)
python3 -m verl.trainer.main_ppo a=${ARR[1]} b=$ARR n=${#ARR[@]} "${ARR[@]}" "keys=${!ARR[*]}"
