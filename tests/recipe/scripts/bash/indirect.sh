NAME=TARGET; TARGET=hit; LIST=(1 2); REF=LIST[@]
python3 -m verl.trainer.main_ppo a=${!NAME} b="${!REF}"
declare -n POINTER=TARGET
POINTER=changed
python3 -m verl.trainer.main_ppo a=$TARGET
