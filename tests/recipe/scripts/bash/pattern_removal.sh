M=org/models/Qwen3-8B.tar.gz
python3 -m verl.trainer.main_ppo a=${M##*/} b=${M#*/} c=${M%/*} d=${M%%/*} e=${M%.gz} f=${M%%.*}
