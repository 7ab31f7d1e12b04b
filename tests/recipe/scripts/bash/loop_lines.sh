while read -r key value; do
  ARGS+=("$key=$value")
done <<EOF
data.a 1
data.b two words
EOF
python3 -m verl.trainer.main_ppo "${ARGS[@]}"
