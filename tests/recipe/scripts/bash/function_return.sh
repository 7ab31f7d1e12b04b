pick() { if [ "$1" = big ]; then echo 8; else echo 1; fi; }
check() { return 3; }
check; S=$?
python3 -m verl.trainer.main_ppo tp=$(pick big) other=$(pick small) s=$S
