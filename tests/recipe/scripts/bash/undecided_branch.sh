if [ -d /data/shared ]; then ROOT=/data/shared; EXTRA=(a=1); else ROOT=$HOME/data; EXTRA=(b=2); fi
python3 -m verl.trainer.main_ppo root=$ROOT "${EXTRA[@]}" tail=1
