python3 -m verl.trainer.main_ppo a='${b.c}' "d=\${oc.env:X}" e=\$X f=$ g="$" h=100% i='a=b=c'
