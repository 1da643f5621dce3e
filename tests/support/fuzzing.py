"""Strange numbers, words, places and characters, as people type them: test_fuzz_commands draws from them."""

NUMBERS = (
    *"0 1 -1 2 3 0.5 0.8 1.0 1e-5 -0.0 1e400 -1e400 1e-400 nan inf -inf infinity".split(),
    *"1_000 0x10 1,5 01 +1 .5 5. 1e3 ٥ ½".split(),
    *(str(2**power) for power in (31, 32, 63, 64, 128)),
    *("-" + "9" * 30, "9" * 400, "9" * 5000),
)
WORDS = (
    *"none None null true false yes gru clip pcgrad ga npo rmu tru tv ga,npo ga,ga npo,none forget01 forget99".split(),
    *"forget٠١ forget1 books bio own llama2 chat paper open-unlearning bf16 fp32 sdpa eager per_tensor adamw".split(),
    *"Phi-1.5 llama-3.2-1b-instruct tofu wmdp muse 0,1,2 0.1,none 0.5,0.5 0.9,1.1 0.9,nan paraphrase labels".split(),
)
PLACES = (
    *". .. ../.. / ~ ~nobody-here ~/x /dev/null /dev/zero /proc/self/mem".split(),
    *"/nowhere ./nowhere ../../etc/passwd a/b".split(),
    *"somebody/a-model somebody/../x somebody/ /x/y//z s3://bucket/x http://user:secret-word@host/x file:///x".split(),
    *"forget=/nowhere forget=a/b mmlu=a/b wmdp=.. =x x= a=b=c a=b,a=c bio_forget=../x".split(),
    *("a" * 300, "a" * 100_000, "a/" * 5000, "/" + "b" * 5000, "somebody/" + "m" * 400),
)
ODD = ("", " ", ",", ",,", "=", "==", "a b", "\x00", "\n", "a\nb", "\x1b[2J", "\udc80", "\u2028", "\u202e", "🦙")
ODD += ("{}", "[]")
