for i in {1..3} {a,b}; do A+=" $i"; done
python3 -m verl.trainer.main_ppo x="$A" {p,q}=1 {01..03} {c..a} {0..6..3} pre{1,{2,3}}post
