A=B; B=C; C=7
python3 -m verl.trainer.main_ppo a=$((A + 1)) b=$(($A * 2)) c=$((${C}1)) d=$[C * 3]
