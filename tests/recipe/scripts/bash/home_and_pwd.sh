python3 -m verl.trainer.main_ppo a=$HOME/x b=~/y c=$PWD/z data.d=~/w e=${HOME}/data
cd /tmp
python3 -m verl.trainer.main_ppo a=$PWD/z b=$(pwd)
