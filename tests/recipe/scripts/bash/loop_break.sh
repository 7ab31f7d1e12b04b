for i in 1 2 3 4; do
  for j in a b; do [[ $i == 2 ]] && break 2; X="$X$i$j"; done
done
python3 -m verl.trainer.main_ppo x=$X i=$i
