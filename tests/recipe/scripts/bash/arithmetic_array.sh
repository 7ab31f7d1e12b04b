S=(4 5 6); I=1
python3 -m verl.trainer.main_ppo a=$((S[0] + S[I])) b=$((S[I + 1])) c=$((${#S[@]} * 8)) d=${S[I]} e=${S[-1]}
