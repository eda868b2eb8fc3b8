"""Programs that only read, with every option that keeps them so.

What is not in the table is not read-only: an option that writes, runs something, follows links, takes names from a
file, or that was not reviewed. Long options count in full spelling only, since programs take any abbreviation.
"""

from typing import Literal, TypeAlias

import msgspec

from .command import make_word_set

#: What the words are that are no options: files and folders, plain text, a pattern and then files, a format that
#: starts with `+`, names of programs.
OperandKind: TypeAlias = Literal["paths", "text", "pattern", "format", "names", "none"]


UNLIMITED = 100_000


class ReadOnlyProgram(msgspec.Struct, frozen=True):
    """The options of a program that keep it read-only."""

    #: Short options without a value, with a value of plain text, with a value that is a path.
    flags: str = ""
    text: str = ""
    path: str = ""
    #: Long options: `--all`, `--color=` with plain text, `--file=@` with a path. A value may be left out only when
    #: the option stands there without `=` as well.
    long: frozenset[str] = frozenset()
    operands: OperandKind = "paths"
    max_operands: int = UNLIMITED
    #: `-5` is a count.
    numbers: bool = False
    #: Options that give the pattern, or make it needless, so that every operand is a path.
    gives_pattern: frozenset[str] = frozenset()


def _long_options(words: str) -> frozenset[str]:
    return frozenset(f"--{word}" for word in words.split())


_GREP = ReadOnlyProgram(
    flags="EFGPacHhIiLlnoqrsTUvwxyZzb",
    text="ABCDdem",
    path="f",
    long=_long_options(
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
_SUM = ReadOnlyProgram(flags="btz", long=_long_options("binary text tag zero"))
_TEXT = ReadOnlyProgram(operands="text")

READ_ONLY_PROGRAMS: dict[str, ReadOnlyProgram] = {
    "ls": ReadOnlyProgram(
        flags="aAbBcCdfFgGhiklmnNopqQrRsStuUvxXZ1",
        text="ITw",
        long=_long_options(
            "all almost-all author escape block-size= ignore-backups color color= directory dired classify classify= "
            "file-type format= full-time group-directories-first no-group human-readable si hide= indicator-style= "
            "inode ignore= kibibytes literal hide-control-chars show-control-chars quote-name quoting-style= reverse "
            "recursive size sort= time= time-style= tabsize= width= context zero numeric-uid-gid"
        ),
    ),
    "cat": ReadOnlyProgram(
        flags="AbeEnstTuv",
        long=_long_options("show-all number-nonblank show-ends number squeeze-blank show-tabs show-nonprinting"),
    ),
    "head": ReadOnlyProgram(
        flags="qvz",
        text="cn",
        long=_long_options("bytes= lines= quiet silent verbose zero-terminated"),
        numbers=True,
    ),
    "tail": ReadOnlyProgram(
        flags="qvz",
        text="cn",
        long=_long_options("bytes= lines= quiet silent verbose zero-terminated"),
        numbers=True,
    ),
    "wc": ReadOnlyProgram(flags="clLmw", long=_long_options("bytes chars lines max-line-length words total=")),
    "grep": _GREP,
    "egrep": _GREP,
    "fgrep": _GREP,
    "rg": ReadOnlyProgram(
        flags="FHINPSUabchilnopqsuvwx0.",
        text="ABCEMTdegjmrt",
        path="f",
        long=_long_options(
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
    "sort": ReadOnlyProgram(
        flags="bcCdfghiMmnrRsuVz",
        text="ktS",
        long=_long_options(
            "ignore-leading-blanks dictionary-order ignore-case general-numeric-sort ignore-nonprinting month-sort "
            "human-numeric-sort numeric-sort random-sort reverse sort= version-sort check check= merge key= "
            "buffer-size= stable field-separator= parallel= unique zero-terminated"
        ),
    ),
    "uniq": ReadOnlyProgram(
        flags="cdDiuz",
        text="fsw",
        long=_long_options(
            "count repeated all-repeated all-repeated= skip-fields= group group= ignore-case skip-chars= unique "
            "zero-terminated check-chars="
        ),
        max_operands=1,
    ),
    "cut": ReadOnlyProgram(
        flags="nsz",
        text="bcdf",
        long=_long_options(
            "bytes= characters= delimiter= fields= complement only-delimited output-delimiter= zero-terminated"
        ),
    ),
    "tr": ReadOnlyProgram(
        flags="cCdst", long=_long_options("complement delete squeeze-repeats truncate-set1"), operands="text"
    ),
    "stat": ReadOnlyProgram(flags="ft", text="c", long=_long_options("file-system format= printf= terse")),
    "file": ReadOnlyProgram(
        flags="bhikNr0",
        text="F",
        long=_long_options(
            "brief mime mime-type mime-encoding no-dereference keep-going separator= raw print0 extension"
        ),
    ),
    "du": ReadOnlyProgram(
        flags="abchklmPsSx0",
        text="dBt",
        long=_long_options(
            "all apparent-size block-size= bytes total human-readable si summarize separate-dirs threshold= "
            "max-depth= exclude= one-file-system time time= time-style= inodes null no-dereference"
        ),
    ),
    "df": ReadOnlyProgram(
        flags="ahHiklPT",
        text="Btx",
        long=_long_options(
            "all block-size= human-readable si inodes local portability type= print-type exclude-type= total"
        ),
    ),
    "pwd": ReadOnlyProgram(flags="LP", operands="none"),
    "whoami": ReadOnlyProgram(operands="none"),
    "id": ReadOnlyProgram(flags="Ggnruz", long=_long_options("group groups name real user zero"), operands="text"),
    "uname": ReadOnlyProgram(
        flags="amnoprsv",
        long=_long_options("all kernel-name nodename kernel-release kernel-version machine processor operating-system"),
        operands="none",
    ),
    "date": ReadOnlyProgram(
        flags="uR", long=_long_options("utc universal rfc-email"), operands="format", max_operands=1
    ),
    "which": ReadOnlyProgram(flags="a", long=_long_options("all"), operands="names"),
    "type": ReadOnlyProgram(flags="afptP", operands="names"),
    "command": ReadOnlyProgram(flags="vV", operands="names"),
    "dirname": ReadOnlyProgram(flags="z", long=_long_options("zero"), operands="text"),
    "basename": ReadOnlyProgram(flags="az", text="s", long=_long_options("multiple suffix= zero"), operands="text"),
    "realpath": ReadOnlyProgram(
        flags="eEmLPqsz",
        long=_long_options(
            "canonicalize-existing canonicalize-missing logical physical quiet relative-to=@ relative-base=@ strip "
            "no-symlinks zero"
        ),
    ),
    "readlink": ReadOnlyProgram(
        flags="efmnqsvz",
        long=_long_options(
            "canonicalize canonicalize-existing canonicalize-missing no-newline quiet silent verbose zero"
        ),
    ),
    "od": ReadOnlyProgram(
        flags="abcdfilosvx",
        text="AjNt",
        long=_long_options("address-radix= endian= skip-bytes= read-bytes= format= output-duplicates"),
    ),
    "hexdump": ReadOnlyProgram(flags="bcCdovx", text="ens"),
    # Without options that take a value: `-ps` is one option of xxd, and its second operand is written.
    "xxd": ReadOnlyProgram(flags="abeEipu", max_operands=1),
    "nl": ReadOnlyProgram(
        flags="p",
        text="bdfhilnsvw",
        long=_long_options(
            "body-numbering= section-delimiter= footer-numbering= header-numbering= line-increment= join-blank-lines= "
            "number-format= no-renumber number-separator= starting-line-number= number-width="
        ),
    ),
    "tac": ReadOnlyProgram(flags="br", text="s", long=_long_options("before regex separator=")),
    "rev": ReadOnlyProgram(),
    "comm": ReadOnlyProgram(
        flags="123z",
        long=_long_options("check-order nocheck-order output-delimiter= total zero-terminated"),
    ),
    "diff": ReadOnlyProgram(
        flags="abBcdeEinNpqstTuwyZ",
        text="CFIUW",
        long=_long_options(
            "normal brief report-identical-files context context= unified unified= ed rcs side-by-side width= "
            "left-column suppress-common-lines show-c-function show-function-line= label= expand-tabs initial-tab "
            "tabsize= ignore-case ignore-tab-expansion ignore-trailing-space ignore-space-change ignore-all-space "
            "ignore-blank-lines ignore-matching-lines= text strip-trailing-cr minimal color color= new-file"
        ),
    ),
    "cmp": ReadOnlyProgram(
        flags="bls", text="in", long=_long_options("print-bytes ignore-initial= verbose bytes= quiet silent")
    ),
    "column": ReadOnlyProgram(
        flags="tx",
        text="cos",
        long=_long_options("table separator= output-separator= output-width= fillrows table-right="),
    ),
    "fold": ReadOnlyProgram(flags="bs", text="w", long=_long_options("bytes spaces width="), numbers=True),
    "paste": ReadOnlyProgram(flags="sz", text="d", long=_long_options("delimiters= serial zero-terminated")),
    "join": ReadOnlyProgram(
        flags="iz", text="12aejotv", long=_long_options("ignore-case check-order nocheck-order header zero-terminated")
    ),
    "expand": ReadOnlyProgram(flags="i", text="t", long=_long_options("initial tabs=")),
    "tree": ReadOnlyProgram(
        flags="AacCdDfFghinpqQrsStuUvxN",
        text="ILP",
        long=_long_options(
            "noreport dirsfirst filesfirst prune sort= gitignore matchdirs ignore-case inodes device du si"
        ),
    ),
    "seq": ReadOnlyProgram(
        flags="w", text="fs", long=_long_options("equal-width format= separator="), operands="text", numbers=True
    ),
    "cd": ReadOnlyProgram(max_operands=1),
    "md5sum": _SUM,
    "sha1sum": _SUM,
    "sha224sum": _SUM,
    "sha256sum": _SUM,
    "sha384sum": _SUM,
    "sha512sum": _SUM,
    "b2sum": _SUM,
    "cksum": ReadOnlyProgram(),
    "true": _TEXT,
    "false": _TEXT,
    ":": _TEXT,
}

#: Predicates of find: how many words each takes, and whether these are paths.
FIND_PREDICATES = (
    dict.fromkeys(
        make_word_set(
            "-print -print0 -ls -prune -quit -depth -d -mount -xdev -daystart -noleaf -empty -readable -writable "
            "-executable -true -false -not ! -o -or -a -and ( ) , -nouser -nogroup -warn -nowarn"
        ),
        (0, False),
    )
    | dict.fromkeys(
        make_word_set(
            "-name -iname -path -ipath -wholename -iwholename -regex -iregex -regextype -type -xtype -size -mtime "
            "-atime -ctime -mmin -amin -cmin -maxdepth -mindepth -perm -user -group -uid -gid -links -inum "
            "-printf -fstype -newermt -used"
        ),
        (1, False),
    )
    | dict.fromkeys(make_word_set("-newer -anewer -cnewer -samefile"), (1, True))
)
