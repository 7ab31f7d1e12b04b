N=1
while [ $N -lt 10 ]; do N=$((N * 2)); done
until (( N == 0 )); do ((N -= 4)); done
python3 -m verl.trainer.main_ppo n=$N
