EMPTY=
SET=s
unset GONE
python3 -m verl.trainer.main_ppo a=${EMPTY:-d} b=${EMPTY-d} c=${SET:+y} d=${EMPTY:+y} e=${EMPTY+y} f=${GONE:=g} g=$GONE
