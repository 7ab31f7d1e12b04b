python3 -m verl.trainer.main_ppo a=1 > /tmp/log 2>&1 b=2 &
wait
python3 -m verl.trainer.main_ppo c=3 2>&1 | tee /tmp/out.log
exec > >(tee /tmp/all.log) 2>&1
python3 -m verl.trainer.main_ppo d=4 >> /tmp/log < /dev/null
