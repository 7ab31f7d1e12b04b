IFS=',' read -ra PARTS <<< "math,code,gsm8k"
python3 -m verl.trainer.main_ppo n=${#PARTS[@]} first=${PARTS[0]} last=${PARTS[2]}
