A=1+2
python3 -m verl.trainer.main_ppo a=$(($A * 2)) b=$((A * 2)) c=$((2#101)) d=$((16#ff))
