A=()
for key in data actor critic; do A+=("$key.batch=8"); done
python3 -m verl.trainer.main_ppo "${A[@]}"
