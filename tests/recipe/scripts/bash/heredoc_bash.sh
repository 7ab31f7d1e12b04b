A=5
bash <<EOF
python3 -m verl.trainer.main_ppo a=$A b=\$A \
  c=3
EOF
bash -s arg <<'EOF'
python3 -m verl.trainer.main_ppo one=$1
EOF
