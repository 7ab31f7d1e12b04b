cat > /tmp/inner.sh <<EOF
python3 -m verl.trainer.main_ppo a=$((1 + 1)) "\$@"
EOF
bash /tmp/inner.sh x=1 'y=2 3'
. /tmp/inner.sh
