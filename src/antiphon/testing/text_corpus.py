"""Texts in which tokenizers are known to differ."""

CORPUS = (
    "What is the capital of France?",
    "I'll say it's what they've DONE; we'd, I'm, you're, can't, 'S 'LL",
    "def f(x: int) -> str:\n    if x > 10:\n\t\treturn f'{x:>8}'\n    # done\n\n\nclass A: pass\n",
    '{"key": [1, 2.50, -3e10], "nested": {"a\\n": null}}',
    "1 12 123 1234567890 3.14159 1,000,000 一二三 x1y22z333",
    " leading, trailing  ",
    "tabs\t\tand  double   triple    quadruple     spaces\n\n\nlines\r\n\r\nend ",
    "\n",
    " ",
    "      ",
    "中文字符，日本語のテキスト、한국어 텍스트입니다。",
    "Здравствуй, мир! مرحبا بالعالم שלום עולם नमस्ते สวัสดี",
    "emoji 😀😃 👩‍👩‍👧‍👦 🏳️‍🌈 🇫🇷 👍🏽 𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𠜎𠜱",
    "e\u0301 n\u0303 a\u030a\u0323 Z\u0351\u036b\u0343\u036a zalgo \u200b\u200d\ufeff",
    "\x00\x01\x02\x04\x06\x1b[0m\x7f\x80\x9f\u00a0\u2028\u3000",
    "…—–«»‘’“”€£¥©®™ ∑∫√∞≠",
    "https://example.com/a?b=c&d=%20#e user@host.org C:\\dir\\f.txt",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!!!!!!!!????----====",
    "<html><body>|im_end|<|im_end</body>",
    "",
)

DIGITS_AFTER_BLANKS = ("a\n\n1", "x =  42", "col\t\t7\n\n\n8", "  \n 9", "a ½ ² b", "٣ ⅷ ①")
"""Where it matters that digits are cut off before words are: a run of blanks before a digit (it
loses its last blank to the digit's word), and numerals whose bytes merge with a space."""
