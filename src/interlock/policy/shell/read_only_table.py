"""Programs that only read, with every option that keeps them so.

What is not in the table is not read-only: an option that writes, runs something, follows links, takes names from a
file, or that nobody looked at. Long options count in full spelling only, since programs take any abbreviation.
"""

from typing import Literal, TypeAlias

import msgspec

from .word_set import word_set

#: What the words are that are no options: files and folders, plain text, a pattern and then files, a format that
#: starts with `+`, names of programs.
Operands: TypeAlias = Literal["paths", "text", "pattern", "format", "names", "none"]


ANY_NUMBER = 100_000


class ReadOnly(msgspec.Struct, frozen=True):
    #: Short options without a value, with a value of plain text, with a value that is a path.
    flags: str = ""
    text: str = ""
    path: str = ""
    #: Long options: `--all`, `--color=` with plain text, `--file=@` with a path. A value may be left out only when
    #: the option stands there without `=` as well.
    long: frozenset[str] = frozenset()
    operands: Operands = "paths"
    max_operands: int = ANY_NUMBER
    #: `-5` is a count.
    numbers: bool = False
    #: Options that give the pattern, or make it needless, so that every operand is a path.
    gives_pattern: frozenset[str] = frozenset()


def _long(words: str) -> frozenset[str]:
    return frozenset(f"--{word}" for word in words.split())


_GREP = ReadOnly(
    flags="EFGPacHhIiLlnoqrsTUvwxyZzb",
    text="ABCDdem",
    path="f",
    long=_long(
        "extended-regexp fixed-strings basic-regexp perl-regexp regexp= file=@ ignore-case no-ignore-case invert-match "
        "word-regexp line-regexp count color color= colour colour= files-with-matches files-without-match max-count= "
        "only-matching quiet silent no-messages byte-offset with-filename no-filename label= line-number initial-tab "
        "null after-context= before-context= context= text binary-files= directories= exclude= exclude-from=@ "
        "exclude-dir= include= recursive null-data line-buffered"
    ),
    operands="pattern",
    numbers=True,
    gives_pattern=frozenset(("e", "f", "--regexp", "--file")),
)
_SUM = ReadOnly(flags="btz", long=_long("binary text tag zero"))
_TEXT = ReadOnly(operands="text")

READ_ONLY: dict[str, ReadOnly] = {
    "ls": ReadOnly(
        flags="aAbBcCdfFgGhiklmnNopqQrRsStuUvxXZ1",
        text="ITw",
        long=_long(
            "all almost-all author escape block-size= ignore-backups color color= directory dired classify classify= "
            "file-type format= full-time group-directories-first no-group human-readable si hide= indicator-style= "
            "inode ignore= kibibytes literal hide-control-chars show-control-chars quote-name quoting-style= reverse "
            "recursive size sort= time= time-style= tabsize= width= context zero numeric-uid-gid"
        ),
    ),
    "cat": ReadOnly(
        flags="AbeEnstTuv",
        long=_long("show-all number-nonblank show-ends number squeeze-blank show-tabs show-nonprinting"),
    ),
    "head": ReadOnly(
        flags="qvz",
        text="cn",
        long=_long("bytes= lines= quiet silent verbose zero-terminated"),
        numbers=True,
    ),
    "tail": ReadOnly(
        flags="qvz",
        text="cn",
        long=_long("bytes= lines= quiet silent verbose zero-terminated"),
        numbers=True,
    ),
    "wc": ReadOnly(flags="clLmw", long=_long("bytes chars lines max-line-length words total=")),
    "grep": _GREP,
    "egrep": _GREP,
    "fgrep": _GREP,
    "rg": ReadOnly(
        flags="FHINPSUabchilnopqsuvwx0.",
        text="ABCEMTdegjmrt",
        path="f",
        long=_long(
            "after-context= before-context= context= regexp= file=@ files files-with-matches files-without-match "
            "fixed-strings glob= iglob= heading no-heading hidden ignore-case invert-match json line-number "
            "no-line-number line-regexp max-columns= max-count= max-depth= max-filesize= multiline no-ignore "
            "no-ignore-vcs no-messages null only-matching pcre2 quiet replace= smart-case case-sensitive sort= "
            "sortr= stats text threads= trim type= type-not= type-list unrestricted vimgrep with-filename "
            "no-filename word-regexp color= column count count-matches crlf byte-offset passthru"
        ),
        operands="pattern",
        gives_pattern=frozenset(("e", "f", "--regexp", "--file", "--files", "--type-list")),
    ),
    "sort": ReadOnly(
        flags="bcCdfghiMmnrRsuVz",
        text="ktS",
        long=_long(
            "ignore-leading-blanks dictionary-order ignore-case general-numeric-sort ignore-nonprinting month-sort "
            "human-numeric-sort numeric-sort random-sort reverse sort= version-sort check check= merge key= "
            "buffer-size= stable field-separator= parallel= unique zero-terminated"
        ),
    ),
    "uniq": ReadOnly(
        flags="cdDiuz",
        text="fsw",
        long=_long(
            "count repeated all-repeated all-repeated= skip-fields= group group= ignore-case skip-chars= unique "
            "zero-terminated check-chars="
        ),
        max_operands=1,
    ),
    "cut": ReadOnly(
        flags="nsz",
        text="bcdf",
        long=_long("bytes= characters= delimiter= fields= complement only-delimited output-delimiter= zero-terminated"),
    ),
    "tr": ReadOnly(flags="cCdst", long=_long("complement delete squeeze-repeats truncate-set1"), operands="text"),
    "stat": ReadOnly(flags="ft", text="c", long=_long("file-system format= printf= terse")),
    "file": ReadOnly(
        flags="bhikNr0",
        text="F",
        long=_long("brief mime mime-type mime-encoding no-dereference keep-going separator= raw print0 extension"),
    ),
    "du": ReadOnly(
        flags="abchklmPsSx0",
        text="dBt",
        long=_long(
            "all apparent-size block-size= bytes total human-readable si summarize separate-dirs threshold= "
            "max-depth= exclude= one-file-system time time= time-style= inodes null no-dereference"
        ),
    ),
    "df": ReadOnly(
        flags="ahHiklPT",
        text="Btx",
        long=_long("all block-size= human-readable si inodes local portability type= print-type exclude-type= total"),
    ),
    "pwd": ReadOnly(flags="LP", operands="none"),
    "whoami": ReadOnly(operands="none"),
    "id": ReadOnly(flags="Ggnruz", long=_long("group groups name real user zero"), operands="text"),
    "uname": ReadOnly(
        flags="amnoprsv",
        long=_long("all kernel-name nodename kernel-release kernel-version machine processor operating-system"),
        operands="none",
    ),
    "date": ReadOnly(flags="uR", long=_long("utc universal rfc-email"), operands="format", max_operands=1),
    "which": ReadOnly(flags="a", long=_long("all"), operands="names"),
    "type": ReadOnly(flags="afptP", operands="names"),
    "command": ReadOnly(flags="vV", operands="names"),
    "dirname": ReadOnly(flags="z", long=_long("zero"), operands="text"),
    "basename": ReadOnly(flags="az", text="s", long=_long("multiple suffix= zero"), operands="text"),
    "realpath": ReadOnly(
        flags="eEmLPqsz",
        long=_long(
            "canonicalize-existing canonicalize-missing logical physical quiet relative-to=@ relative-base=@ strip "
            "no-symlinks zero"
        ),
    ),
    "readlink": ReadOnly(
        flags="efmnqsvz",
        long=_long("canonicalize canonicalize-existing canonicalize-missing no-newline quiet silent verbose zero"),
    ),
    "od": ReadOnly(
        flags="abcdfilosvx",
        text="AjNt",
        long=_long("address-radix= endian= skip-bytes= read-bytes= format= output-duplicates"),
    ),
    "hexdump": ReadOnly(flags="bcCdovx", text="ens"),
    # Without options that take a value: `-ps` is one option of xxd, and its second operand is written.
    "xxd": ReadOnly(flags="abeEipu", max_operands=1),
    "nl": ReadOnly(
        flags="p",
        text="bdfhilnsvw",
        long=_long(
            "body-numbering= section-delimiter= footer-numbering= header-numbering= line-increment= join-blank-lines= "
            "number-format= no-renumber number-separator= starting-line-number= number-width="
        ),
    ),
    "tac": ReadOnly(flags="br", text="s", long=_long("before regex separator=")),
    "rev": ReadOnly(),
    "comm": ReadOnly(
        flags="123z",
        long=_long("check-order nocheck-order output-delimiter= total zero-terminated"),
    ),
    "diff": ReadOnly(
        flags="abBcdeEinNpqstTuwyZ",
        text="CFIUW",
        long=_long(
            "normal brief report-identical-files context context= unified unified= ed rcs side-by-side width= "
            "left-column suppress-common-lines show-c-function show-function-line= label= expand-tabs initial-tab "
            "tabsize= ignore-case ignore-tab-expansion ignore-trailing-space ignore-space-change ignore-all-space "
            "ignore-blank-lines ignore-matching-lines= text strip-trailing-cr minimal color color= new-file"
        ),
    ),
    "cmp": ReadOnly(flags="bls", text="in", long=_long("print-bytes ignore-initial= verbose bytes= quiet silent")),
    "column": ReadOnly(
        flags="tx", text="cos", long=_long("table separator= output-separator= output-width= fillrows table-right=")
    ),
    "fold": ReadOnly(flags="bs", text="w", long=_long("bytes spaces width="), numbers=True),
    "paste": ReadOnly(flags="sz", text="d", long=_long("delimiters= serial zero-terminated")),
    "join": ReadOnly(
        flags="iz", text="12aejotv", long=_long("ignore-case check-order nocheck-order header zero-terminated")
    ),
    "expand": ReadOnly(flags="i", text="t", long=_long("initial tabs=")),
    "tree": ReadOnly(
        flags="AacCdDfFghinpqQrsStuUvxN",
        text="ILP",
        long=_long("noreport dirsfirst filesfirst prune sort= gitignore matchdirs ignore-case inodes device du si"),
    ),
    "seq": ReadOnly(flags="w", text="fs", long=_long("equal-width format= separator="), operands="text", numbers=True),
    "cd": ReadOnly(max_operands=1),
    "md5sum": _SUM,
    "sha1sum": _SUM,
    "sha224sum": _SUM,
    "sha256sum": _SUM,
    "sha384sum": _SUM,
    "sha512sum": _SUM,
    "b2sum": _SUM,
    "cksum": ReadOnly(),
    "true": _TEXT,
    "false": _TEXT,
    ":": _TEXT,
}

#: Predicates of find: how many words each takes, and whether these are paths.
FIND_PREDICATES = (
    dict.fromkeys(
        word_set(
            "-print -print0 -ls -prune -quit -depth -d -mount -xdev -daystart -noleaf -empty -readable -writable "
            "-executable -true -false -not ! -o -or -a -and ( ) , -nouser -nogroup -warn -nowarn"
        ),
        (0, False),
    )
    | dict.fromkeys(
        word_set(
            "-name -iname -path -ipath -wholename -iwholename -regex -iregex -regextype -type -xtype -size -mtime "
            "-atime -ctime -mmin -amin -cmin -maxdepth -mindepth -perm -user -group -uid -gid -links -inum "
            "-printf -fstype -newermt -used"
        ),
        (1, False),
    )
    | dict.fromkeys(word_set("-newer -anewer -cnewer -samefile"), (1, True))
)
