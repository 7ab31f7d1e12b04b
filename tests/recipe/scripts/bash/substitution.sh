A=$(echo hello world)
B=$(printf '%s-%02d' run 7)
C=`basename /models/Qwen3-8B`
D=$(dirname /a/b/c.txt)
E="$(echo "x  y")"
python3 -m verl.trainer.main_ppo a="$A" b=$B c=$C d=$D e="$E" f=$(echo 1 2) g=$(seq -s, 3)
