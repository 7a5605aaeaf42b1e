//! The output of zlib for the three messages of `compression.zig`'s `writeText`, a deflate stream for each
//! set, flushed with Z_SYNC_FLUSH after each message and without the last four bytes. Made by Python's
//! zlib.compressobj; base64 in lines.
pub const Set = struct {
    name: []const u8,
    window_bits: u4,
    takeover: bool,
    messages: [3][]const u8,
};

pub const sets = [_]Set{
    .{
        .name = "wbits 9, level 6",
        .window_bits = 9,
        .takeover = true,
        .messages = .{
            \\VI8BbsMgDEWvwhEC2BiOQ9aojRaaaGulKKefjSHNJGTAfL//mV7ZrGX++lmfZpz4Ut6ykKyPcrjnUmpz2n7nhUWiQSC0Zp/NNpvnW1YdfT2k1iM/
            \\1L2j5eyHBKEB+R0GQtdmtNoQYjCf+3fetmyWXMZbNvPKHXb61xTVbVo0tpKPM4P1MMRzruc/9CkFkBBqBIDOnVlV4SynY2pzUriad6Q6WwCbroE6
            \\h/Gq18pXXVeNIirQEkE0+yyr0bpKJrpB+8YVwlHUgid7L1gC7G6jlLxsj14R3VB/x4L66KODpDmOjxiTDaANSuSbC5BHEFMNz6YeElFPyNTKCZD4
            \\Pzpyz6Vk4yjF0Ka0s2s+TgGY0HZEdVSFnHSiQjF4Tx36Bw==
            ,
            \\XE8LjuMwCL1KjoAB/46TzkbTaOsmamek1Z5+MWC3s1JiY3i8j1i4+Pqk+7puA2uoo+0fj+PuJMockEP2hnC071eNBQr6c/Nf6GVimzVh0WaImWhZ
            \\b+dVcqXUpe1BnAP+CDLtEYeQrMcYObhZxhJh+tzO536bfglyCl3enmLVqOw0xUsn0UNw1jL07/U8xV0tkfqImUCNiqFYA3CvhxyxdKaJKSiFmXSr
            \\MSb4oSFcKm2pSoW6eObb2i6/1iUGlNDCc/H+NGn2rDZ6mSrP+0TXrMxY0GURmZb9GMKySAlLGtMSaujpbO9zbW0dfgyhWwIY9q27nc/9dtwXYqLi
            \\npo7T1ijSzpTZqq+WBJwRw4CpT/a/vGQBxeA4pl6P1LMPKfKaCxvCxL0/u0O7FScJbFUATKAEhq1RCGGHPtiLCGZ7f9YYqkFvJ5r8gnMU7WxwMDM
            \\Dvqze3NY7HUOqZotzAT4nsTA5tPOvy/FUAHCO1rE29QXKWYs5GCEnKA3X4TDAyaC4rDRG3dfOJ/7zUqnvmxTUvQsuEw/19ZeDDJRr4gx5j5Wo8yB
            \\gmsNYoWdk11xsi0rpiEjhaisZNSbiHEQCXKoWrLmIBszpsK+BZjz0itlTCVW09NDuPXe1CglAwm7DORLISC4whS20Aocf6iJyfQMbKchPeTXVdHn
            \\c7+Ja6JUi6elUhM5v4MljgrYkrz6de5LjDVX5xUrjIHjcrT94yGcp9o+/gE=
            ,
            \\ghgKIYFqwP6DKYFZDxQ3MjY1M4JaAFYD1A4UNjS0tDQAW2dkaGFiDlZpaGgGdh4A
            ,
        },
    },
    .{
        .name = "wbits 10, level 6",
        .window_bits = 10,
        .takeover = true,
        .messages = .{
            \\VFIJjsMgDPwKTwhg4/Acuo22aJMGdVupyutrME5SyXKIj5nBZnomsy7557HezWXin+VVDcn6sR5+07K04FT+88xFtQaB0Jp3NiWb+6taa33eqm9H
            \\TrSvQtezHyKEDsh5GAhd7xFvQxiDOf7/UinJzGm5XJPJK0eY6StYq67TLLIFeds1WA/DuPep/k1SMUAVIUQA6NyuVSqcZXWM2pkEXMgVUpgtgI1n
            \\QYrD8FIvvuRu5xqBaICWCMY6VLaOdp6eEpzWoOl9KtypsWAJUNnaONJcbuoR3dBup3vyo4MoOrajGKPlMbUARfKdBcgjHPdnUg+RSBUyasMJEPk+
            \\0iLTcxR5v9Ilkbfoq68BIz+pDtEYpeLYcAPF4D0p6Ac=
            ,
            \\XFLJbSQxDEzFIfCUqHQM+Dne78LRm81D0hiY6VaLV7Gq2ndevtuloJGbWe9Ml7aCsy6+w+77TAZG9flV/zR5Vq5BFpeok7loojGe0fnBMpHeFtnw
            \\WBBH3gmpYLuPTOFoXQInBoY58HC9XZ7PnPi5Jfa8vMrsJICWKT8hEYYA6oBcWZCgv8a5hAi3ozYlCbKgqg54m9EGyq1swWrOigJF8qUvqTbIhJfn
            \\bO/R6HNHLu9O2toQCV929UJ2ZdpcZLjwSJJkFZ7LB0nF57HYIYPZCtOrkA9aWiOr0xReVWjD2fTMbhDtm0wxAKudnntlnbKj0TG7XAW+6B/qI++W
            \\HWECfBy6Hg4Epj6Fas55W+LuorYM6rzLUpTa6tUFAiJSSc5UXm6X+nniWAmLJgPdm2Ry4sznpSsuALyzffhrz/dRImTc7oXpjnuMuhs2Bhq8ee27
            \\fl/O/r+teCnt83JxjyapXemRwEqkOp9wABVBxtbwFvkYPfK82ktyRru5dYg3sxAeVntqbtZey7DQMKkqoDmDgug4TIv5eHjveIdqwmO72wP+G4gE
            \\NWEPzqUjsf+4hnDOu5XLzFoyhW0GmMey2pZtjRbtWOnnWM+/ijDVNVf1feQmFN1MpBn//QI=
            ,
            \\ghgKIWGRAE98iJg1MjY1M4JaAFYDiVJDQ0tLA7B1RoYWJuBoNDI0NAM7DwA=
            ,
        },
    },
    .{
        .name = "wbits 11, level 6",
        .window_bits = 11,
        .takeover = true,
        .messages = .{
            \\VFIJjsMgDPwKTwhg4/Acuo22aJMGdVupyutrME5SyXKIj5nBZnomsy7557HezWXin+VVDcn6sR5+07K04FT+88xFtQaB0Jp3NiWb+6taa33eqm9H
            \\TrSvQtezHyKEDsh5GAhd7xFvQxiDOf7/UinJzGm5XJPJK0eY6StYq67TLLIFeds1WA/DuPep/k1SMUAVIUQA6NyuVSqcZXWM2pkEXMgVUpgtgI1n
            \\QYrD8FIvvuRu5xqBaICWCMY6VLaOdp6eEpzWoOl9KtypsWAJUNnaONJcbuoR3dBup3vyo4MoOrajGKPlMbUARfKdBcgjHPdnUg+RSBUyasMJEPk+
            \\0iLTcxR5v9Ilkbfoq68BIz+pDtEYpeLYcAPF4D0p6Ac=
            ,
            \\ZFVZbgMhDL1KjuANA9eJ1M+0+c7p68E2eFopyUwAs7yN1J2V7+mc0DXWR92RDm4FezR8L7nvdxowKP5+xddF7pVTaaxGbJ05YCLVa2n/w9KRbgfZ
            \\22NBVG8TaoKpPhoNDtdBsO+BoSserLfK/ddXfG6KbZw3+WgHgOZofHWJMGi41pgFWfDHckYhQlXUhqQ6VFpTuK2RAvJTjQkzMQsImjlJH4WqvUnf
            \\nr/79Nb7OcYvp/PXTpsbIuEiVytkYybFRQMnHkocrNhP0YFD8TwSO2CwpZ/v6RU7V5otloyZuvCMwqGG5utPyCSYMgDSCCs9uXXZvWtGn6UU2EH/
            \\QL/GVdoROsDjwHVhcGXqVdiGYZ6SqLO0MQfc4vWdKX7sG1yDiJxg8caaSB01IoM6W5yUk/jgmjiFV5wAWEe7B2N9W0rMERk2ZAaAzAmfKvdAyhvX
            \\bMtnUfaJ08K0R997ha2DmpWvsDpRa/3qXhu1jGdMDivJR+hrnFVbybbGuYzSAMxC+D+u/WSptchZ0iFRBWQBu32mowXyeRWtp19lrFvd1mEfRSS4
            \\eW4f+pMZF+Fmpvp3V9zc48Run7DOkUk1piZpR0qfI73LHo5Ka7PPE9kGiF1ViYSL8ecX
            ,
            \\ghgKr2HA/kMvIoHiRsamZkbIOQQSpYaGlpaQvGFkaGECjkYjUNkLch4A
            ,
        },
    },
    .{
        .name = "wbits 12, level 6",
        .window_bits = 12,
        .takeover = true,
        .messages = .{
            \\VFIJjsMgDPwKTwhg4/Acuo22aJMGdVupyutrME5SyXKIj5nBZnomsy7557HezWXin+VVDcn6sR5+07K04FT+88xFtQaB0Jp3NiWb+6taa33eqm9H
            \\TrSvQtezHyKEDsh5GAhd7xFvQxiDOf7/UinJzGm5XJPJK0eY6StYq67TLLIFeds1WA/DuPep/k1SMUAVIUQA6NyuVSqcZXWM2pkEXMgVUpgtgI1n
            \\QYrD8FIvvuRu5xqBaICWCMY6VLaOdp6eEpzWoOl9KtypsWAJUNnaONJcbuoR3dBup3vyo4MoOrajGKPlMbUARfKdBcgjHPdnUg+RSBUyasMJEPk+
            \\0iLTcxR5v9Ilkbfoq68BIz+pDtEYpeLYcAPF4D0p6Ac=
            ,
            \\ZFVLdsMgDLxKjqAfAq6T97pM23VPXxlJICeLxDZIIGY0Q/adpe/lnNAV61F3pINbwR4D36vd9zsNGBSfX/HzJvfMqTTWILbOHDCR6rW1f7B0pNtB
            \\dnksiOpjQk0wu49Gg8N1EOw1MHTFg/Xucv/3HZ+bYovzIY92AGiOxteUCIOGao1ZkAV/bGcUItSO2pBUhUprCrc9soH8VGPCTMwCgmZK0kehahfp
            \\5fm7L2+zf0f45XT+2mlzQyRc2tUS2ZjJ5qKBEw8lDlbUU/rAoXieFjtgsLmf1/SKypVmiy1jpS48I3Goofl6M5kEUwZACmG5J7cue3at6KuUBDvo
            \\G/QrrtKO0AEeB64Lg8tTr8Q2DPNsibpKG3PAzV5/08WPfINrEJFjLD5YHamjhmVQZ7OTchIPro5TeMUJgDXaNRj721ZiikizIRMApE/4UlkDKW9c
            \\cyyfpbOPnRam3fp+l9k6qJn5CqkTtdav6VWoeTxjclhJPo2+4izbUrY0zmWUAmAWwk+79pNlr4XPkg6JLCAz2K0zHS2Qz6toPf0qY93d7XezIhLc
            \\NLcP/ZceF+Zmovq4K27qcWK3TljnSKcaU/l+OyeUW0gBWGuzz2PZBohdVeXWtJp//gE=
            ,
            \\ghgKr2HA/kMvIoHiRsamZkbIOQQSpYaGlpaQvGFkaGECjkYjUNkLch4A
            ,
        },
    },
    .{
        .name = "wbits 13, level 6",
        .window_bits = 13,
        .takeover = true,
        .messages = .{
            \\VFIJjsMgDPwKTwhg4/Acuo22aJMGdVupyutrME5SyXKIj5nBZnomsy7557HezWXin+VVDcn6sR5+07K04FT+88xFtQaB0Jp3NiWb+6taa33eqm9H
            \\TrSvQtezHyKEDsh5GAhd7xFvQxiDOf7/UinJzGm5XJPJK0eY6StYq67TLLIFeds1WA/DuPep/k1SMUAVIUQA6NyuVSqcZXWM2pkEXMgVUpgtgI1n
            \\QYrD8FIvvuRu5xqBaICWCMY6VLaOdp6eEpzWoOl9KtypsWAJUNnaONJcbuoR3dBup3vyo4MoOrajGKPlMbUARfKdBcgjHPdnUg+RSBUyasMJEPk+
            \\0iLTcxR5v9Ilkbfoq68BIz+pDtEYpeLYcAPF4D0p6Ac=
            ,
            \\ZFVLdsMgDLxKjqAfAq6T97pM23VPXxlJICeLxDZIIGY0Q/adpe/lnNAV61F3pINbwR4D36vd9zsNGBSfX/HzJvfMqTTWILbOHDCR6rW1f7B0pNtB
            \\dnksiOpjQk0wu49Gg8N1EOw1MHTFg/Xucv/3HZ+bYovzIY92AGiOxteUCIOGao1ZkAV/bGcUItSO2pBUhUprCrc9soH8VGPCTMwCgmZK0kehahfp
            \\5fm7L2+zf0f45XT+2mlzQyRc2tUS2ZjJ5qKBEw8lDlbUU/rAoXieFjtgsLmf1/SKypVmiy1jpS48I3Goofl6M5kEUwZACmG5J7cue3at6KuUBDvo
            \\G/QrrtKO0AEeB64Lg8tTr8Q2DPNsibpKG3PAzV5/08WPfINrEJFjLD5YHamjhmVQZ7OTchIPro5TeMUJgDXaNRj721ZiikizIRMApE/4UlkDKW9c
            \\cyyfpbOPnRam3fp+l9k6qJn5CqkTtdav6VWoeTxjclhJPo2+4izbUrY0zmWUAmAWwk+79pNlr4XPkg6JLCAz2K0zHS2Qz6toPf0qY93d7XezIhLc
            \\NLcP/ZceF+Zmovq4K27qcWK3TljnSKcaU/l+OyeUW0gBWGuzz2PZBohdVeXWtJp//gE=
            ,
            \\ghgKr2HA/kMvIoHiRsamZkbIOQQSpYaGlpaQvGFkaGECjkYjUNkLch4A
            ,
        },
    },
    .{
        .name = "wbits 14, level 6",
        .window_bits = 14,
        .takeover = true,
        .messages = .{
            \\VFIJjsMgDPwKTwhg4/Acuo22aJMGdVupyutrME5SyXKIj5nBZnomsy7557HezWXin+VVDcn6sR5+07K04FT+88xFtQaB0Jp3NiWb+6taa33eqm9H
            \\TrSvQtezHyKEDsh5GAhd7xFvQxiDOf7/UinJzGm5XJPJK0eY6StYq67TLLIFeds1WA/DuPep/k1SMUAVIUQA6NyuVSqcZXWM2pkEXMgVUpgtgI1n
            \\QYrD8FIvvuRu5xqBaICWCMY6VLaOdp6eEpzWoOl9KtypsWAJUNnaONJcbuoR3dBup3vyo4MoOrajGKPlMbUARfKdBcgjHPdnUg+RSBUyasMJEPk+
            \\0iLTcxR5v9Ilkbfoq68BIz+pDtEYpeLYcAPF4D0p6Ac=
            ,
            \\ZFVLdsMgDLxKjqAfAq6T97pM23VPXxlJICeLxDZIIGY0Q/adpe/lnNAV61F3pINbwR4D36vd9zsNGBSfX/HzJvfMqTTWILbOHDCR6rW1f7B0pNtB
            \\dnksiOpjQk0wu49Gg8N1EOw1MHTFg/Xucv/3HZ+bYovzIY92AGiOxteUCIOGao1ZkAV/bGcUItSO2pBUhUprCrc9soH8VGPCTMwCgmZK0kehahfp
            \\5fm7L2+zf0f45XT+2mlzQyRc2tUS2ZjJ5qKBEw8lDlbUU/rAoXieFjtgsLmf1/SKypVmiy1jpS48I3Goofl6M5kEUwZACmG5J7cue3at6KuUBDvo
            \\G/QrrtKO0AEeB64Lg8tTr8Q2DPNsibpKG3PAzV5/08WPfINrEJFjLD5YHamjhmVQZ7OTchIPro5TeMUJgDXaNRj721ZiikizIRMApE/4UlkDKW9c
            \\cyyfpbOPnRam3fp+l9k6qJn5CqkTtdav6VWoeTxjclhJPo2+4izbUrY0zmWUAmAWwk+79pNlr4XPkg6JLCAz2K0zHS2Qz6toPf0qY93d7XezIhLc
            \\NLcP/ZceF+Zmovq4K27qcWK3TljnSKcaU/l+OyeUW0gBWGuzz2PZBohdVeXWtJp//gE=
            ,
            \\ghgKr2HA/kMvIoHiRsamZkbIOQQSpYaGlpaQvGFkaGECjkYjUNkLch4A
            ,
        },
    },
    .{
        .name = "wbits 15, level 6",
        .window_bits = 15,
        .takeover = true,
        .messages = .{
            \\VFIJjsMgDPwKTwhg4/Acuo22aJMGdVupyutrME5SyXKIj5nBZnomsy7557HezWXin+VVDcn6sR5+07K04FT+88xFtQaB0Jp3NiWb+6taa33eqm9H
            \\TrSvQtezHyKEDsh5GAhd7xFvQxiDOf7/UinJzGm5XJPJK0eY6StYq67TLLIFeds1WA/DuPep/k1SMUAVIUQA6NyuVSqcZXWM2pkEXMgVUpgtgI1n
            \\QYrD8FIvvuRu5xqBaICWCMY6VLaOdp6eEpzWoOl9KtypsWAJUNnaONJcbuoR3dBup3vyo4MoOrajGKPlMbUARfKdBcgjHPdnUg+RSBUyasMJEPk+
            \\0iLTcxR5v9Ilkbfoq68BIz+pDtEYpeLYcAPF4D0p6Ac=
            ,
            \\ZFVLdsMgDLxKjqAfAq6T97pM23VPXxlJICeLxDZIIGY0Q/adpe/lnNAV61F3pINbwR4D36vd9zsNGBSfX/HzJvfMqTTWILbOHDCR6rW1f7B0pNtB
            \\dnksiOpjQk0wu49Gg8N1EOw1MHTFg/Xucv/3HZ+bYovzIY92AGiOxteUCIOGao1ZkAV/bGcUItSO2pBUhUprCrc9soH8VGPCTMwCgmZK0kehahfp
            \\5fm7L2+zf0f45XT+2mlzQyRc2tUS2ZjJ5qKBEw8lDlbUU/rAoXieFjtgsLmf1/SKypVmiy1jpS48I3Goofl6M5kEUwZACmG5J7cue3at6KuUBDvo
            \\G/QrrtKO0AEeB64Lg8tTr8Q2DPNsibpKG3PAzV5/08WPfINrEJFjLD5YHamjhmVQZ7OTchIPro5TeMUJgDXaNRj721ZiikizIRMApE/4UlkDKW9c
            \\cyyfpbOPnRam3fp+l9k6qJn5CqkTtdav6VWoeTxjclhJPo2+4izbUrY0zmWUAmAWwk+79pNlr4XPkg6JLCAz2K0zHS2Qz6toPf0qY93d7XezIhLc
            \\NLcP/ZceF+Zmovq4K27qcWK3TljnSKcaU/l+OyeUW0gBWGuzz2PZBohdVeXWtJp//gE=
            ,
            \\ghgKr2HA/kMvIoHiRsamZkbIOQQSpYaGlpaQvGFkaGECjkYjUNkLch4A
            ,
        },
    },
    .{
        .name = "level 9, no context takeover",
        .window_bits = 15,
        .takeover = false,
        .messages = .{
            \\VFIJjsMgDPwKTwhg4/Acuo22aJMGdVupyutrME5SyXKIj5nBZnomsy7557HezWXin+VVDcn6sR5+07K04FT+88xFtQaB0Jp3NiWb+6taa33eqm9H
            \\TrSvQtezHyKEDsh5GAhd7xFvQxiDOf7/UinJzGm5XJPJK0eY6StYq67TLLIFeds1WA/DuPep/k1SMUAVIUQA6NyuVSqcZXWM2pkEXMgVUpgtgI1n
            \\QYrD8FIvvuRu5xqBaICWCMY6VLaOdp6eEpzWoOl9KtypsWAJUNnaONJcbuoR3dBup3vyo4MoOrajGKPlMbUARfKdBcgjHPdnUg+RSBUyasMJEPk+
            \\0iLTcxR5v9Ilkbfoq68BIz+pDtEYpeLYcAPF4D0p6Ac=
            ,
            \\XFQLjhoxDL1KjuBffscZuqiLygBqF2nF6evETiasBJmMv8/P9tye4XT+2sLjEn5v+76F70v4+mySy12PP9vjsYX7fvn1934LH+eryl5NiySYXXB7
            \\hv153KlAIX89+1/Dq8Y8a6LShRgzc9iuj88tUEottb2wZKRw3fbTh6eb8FgQk8mEoqCDFSoRJs7z49/lOvEy5IQtvb0qVAtlp2XsHPRD7Uxk1kYA
            \\1RK5qUQYOlAFFCuCtPtIx6KSCeK2UGIgHWqMCd5yaKye2qoqFergzCmISFr07WjVBGnw7G7hVdvjrJruZtdMszdEwtblQTFrZ9LQFqx4tMTIcjzL
            \\HBgVPYF3fJLBXBzT7sgT1egpPVIWru5YkrKpliNADz/IlAJQvKYmjxyzTG2PaFEWBy30B/Xdbm07QgYIB12NA4Ecm2MsyvkYiTVKLLWA36ebNcWr
            \\2oeDgIi40VysOaV6z5iqwaLMQGslZmw47Vz6ihUAV2vbQc+vqUQ3gsf06gJAH9QZcGCgxJPXIRvPZbK/5ygundZ8Vvj3WM7hufuqE8WYm7oDFUHG
            \\0cO1ycegdzv1Vpe5Gq91NfuTWQgPVkdWq2zMmqmFUhH3Aso5zD1LJTrz/dDY/dm7JpzmdKtCfwmR4G3nZtGv8/Kd04+bLtXpZ+fetscaO/eEUy3j
            \\S1VqGk07Rul1jF5bD2Mlxprr8clWQiROJmwY7/8B
            ,
            \\SknNKUlUSAGTFZkKmflAOj83M7koP08htaA4MwdIA8WNjE3NjBRKMlKB0mA1BZkgYUNDS0sDBZCgkaGFiTlYpaGhmUJ2YkEBAA==
            ,
        },
    },
    .{
        .name = "level 1",
        .window_bits = 15,
        .takeover = true,
        .messages = .{
            \\VFILbsMgDL0KR4jBxuE4dI3WqEkTda007fT1B6JMQgTs5/eeTaZXDds6fz23R7hMclnfuoghjXr4rutqwWn/mRcBKYaQCcLvHPY5PN66rPR106Qd
            \\JWHfTq2JNBTMjVDyODDF4DW+Q85jNgG/3+u+17DU9XKtYd6EQpT+BZX2Oi2yH1b/Dg+QcBiPuu7f8pBKRnXvQogU4zEGR0QQd8La5H0OLt6tuDIg
            \\QukwFe89C73jfZerrzPGKYwQmHHUocpqop1JK1qot3EmOaYilb0kAyOpoALtKeqy32rwnSgO1p0ALJnGiMVnZe03WAEZkwW4cGrtICdCfQo3L6IJ
            \\C3N3KDOzfjIW6cd79+lFLvK+XuURqVV/4gKpyC/VmjRFR2j6NCTKKXEn/QA=
            ,
            \\XFVZliMxCLuSWbydau7/NzICl9PvpVNpA0IITNXcIfzCsaFBgKlLEIJkb11mogIDhGnEb11taf57Uic7WBi5h644lD7NUk0d4zSNmplP0Z9CLj1z
            \\kUEg1+5S06ert9u4ajApWZtDPq3vlLNeZowGxhdo8ojBFED36nYg3K0FURDqW5of0pUOLZSPBLyvJFQ0L0rvo/3kAFakDnl87bZLs+xlF0XRAAw3
            \\uF+SpEfChIc1cF5LhNFp6u2Nqtszrgg0dKaGS5fs2E+Mo1jJh3VFGpRf9Hn6iWHYfuQEyYPC0A0ZY7ASabrtlGkNqAnPAgj4mjxfDXuINZ156tan
            \\334HItM/ASgUOr3Sh9/bdmmztRCb0EeDs1NPYF/QPGj/Qelrr5a4NwyRcMuqUEX2url70oZSPCyKp44pI1eGTsM6eSqhM9Xn99NX2a3J643kyJr5
            \\kcpdVy0bxQVoMajISKjioMOurnVWz2ey8TOhQxBKjXyoGh9YKWpFwhJcVXufxxxlYcebVA/zTRhugEj08EM0QpgDpnCpPsTTzLWA4FlZWRmiw4md
            \\cR3LeQB5sWCP6IE4Vk/lIyn0i+ex45LnigE6DPgMEa1LS2SYWHSgnbDzJ3gnGvO9nfu5PWxsjbnZ2CurtbVHNe0bpUjAIBR3skCV3vfc38qGIHhV
            \\lRKwg/O//wA=
            ,
            \\ggQhhAQ6F+w/mBKY9UBxI2NTM1gjAqwGqB0obGhoaQnJG0aGFibgaDQClb0g7wMA
            ,
        },
    },
    .{
        .name = "level 0: stored blocks",
        .window_bits = 15,
        .takeover = true,
        .messages = .{
            \\ALwCQ/1ldGEgb21pY3JvbiBiZXRhIG11IG11IDU3MTM4IG11IGdhbW1hIG11IGVwc2lsb24gZXRhIDU0NzUxIHhpIHBpIG51IG51IGJldGEgdGhl
            \\dGEgYmV0YSBwaSBiZXRhIG9taWNyb24gZXRhIDMwOTQ2IGdhbW1hIHBpIDQwNzUyIHRoZXRhIHRoZXRhIDE2Njg2IGV0YSB0aGV0YSBrYXBwYSBs
            \\YW1iZGEgaW90YSBudSBrYXBwYSBsYW1iZGEgZXRhIGRlbHRhIG11IGdhbW1hIHpldGEgYmV0YSAxMzQwOCBpb3RhIG51IGVwc2lsb24gemV0YSAx
            \\Mzk2NCBwaSB0aGV0YSA0NDUyMiBvbWljcm9uIHpldGEgMTIxNTIgbXUgbGFtYmRhIGdhbW1hIGthcHBhIGlvdGEgbnUgZGVsdGEgMTQ0MTkgbGFt
            \\YmRhIGV0YSBvbWljcm9uIHBpIGthcHBhIGthcHBhIHBpIHBpIHBpIGV0YSBvbWljcm9uIGRlbHRhIGlvdGEgMTc3NDggeGkgeGkgbGFtYmRhIG9t
            \\aWNyb24gZXRhIGxhbWJkYSBlcHNpbG9uIGV0YSBvbWljcm9uIG51IGthcHBhIHhpIG9taWNyb24gNjE3NDUgcGkgZXRhIGJldGEgYWxwaGEgYWxw
            \\aGEgNTUyMDIgbXUgcGkgYmV0YSAzODI0OSBpb3RhIHpldGEgYWxwaGEgNTkxNjQgemV0YSA3OTczIGthcHBhIDQ3MzU0IG51IGRlbHRhIHhpIDM0
            \\OTc3IGxhbWJkYSBtdSBpb3RhIDY0OTQ4IGthcHBhIGdhbW1hIDI3OTg2IGRlbHRhIGdhbW1hIHhpIGV0YSBwaSA0NTk1MSBsYW1iZGEgemV0YSBn
            \\YW1tYSBldGEgZGVsdGEgaW90YSA1NjMzNyBrYXBwYSBnAA==
            ,
            \\ANwFI/pudSBiZXRhIHBpIGdhbW1hIHhpIHRoZXRhIGlvdGEga2FwcGEgb21pY3JvbiBkZWx0YSB6ZXRhIDEyNDE3IGRlbHRhIG51IG11IGRlbHRh
            \\IG51IDI4MDgyIGRlbHRhIGV0YSBldGEgcGkgbnUgemV0YSAxOTYyOCBldGEgMTU3MzMgYWxwaGEgMjY2IHhpIGFscGhhIDM0NzEyIGxhbWJkYSB6
            \\ZXRhIHBpIGdhbW1hIDM0MTE2IHpldGEgNDI1NDEgdGhldGEgNDI4NTAgb21pY3JvbiBlcHNpbG9uIGRlbHRhIDMwNzYxIG51IGRlbHRhIG11IGdh
            \\bW1hIGdhbW1hIGFscGhhIGJldGEgYmV0YSBudSBhbHBoYSBkZWx0YSBrYXBwYSAyOTg1MyBudSA0NDMwNiB4aSBwaSA1OTEwNCB4aSBlcHNpbG9u
            \\IDM0OTEwIG9taWNyb24gbnUgZGVsdGEgbnUgdGhldGEgdGhldGEgNDU1NjAgYWxwaGEgZGVsdGEgcGkgYmV0YSB6ZXRhIDQ4OTA5IGV0YSBwaSBs
            \\YW1iZGEgNTEyMTYgbnUgYmV0YSBwaSBudSBhbHBoYSBrYXBwYSBhbHBoYSB0aGV0YSBwaSB6ZXRhIGthcHBhIGFscGhhIGJldGEgYWxwaGEgNzI4
            \\MiBkZWx0YSAyMjQzIGlvdGEgemV0YSBwaSAzNjI4NiBkZWx0YSAyODE5MSB4aSBhbHBoYSBnYW1tYSBsYW1iZGEgZGVsdGEgemV0YSB4aSBwaSBi
            \\ZXRhIGRlbHRhIGVwc2lsb24gMzQzMzggdGhldGEgbXUgYmV0YSA2Mjk1MyBpb3RhIGxhbWJkYSA3NDM5IGRlbHRhIDg2MDQgbXUgZXBzaWxvbiB6
            \\ZXRhIG9taWNyb24gNDgwMDgga2FwcGEgZXRhIDUzNTc0IG9taWNyb24gaW90YSBkZWx0YSBvbWljcm9uIDQ4MDgyIG51IHRoZXRhIHRoZXRhIGlv
            \\dGEgZ2FtbWEgYWxwaGEgMTA3MDAgZXRhIGthcHBhIHBpIDM0MDc1IG51IDU4MTYgYmV0YSBudSB0aGV0YSB0aGV0YSA1ODk4MCB0aGV0YSBrYXBw
            \\YSBwaSBwaSBudSBsYW1iZGEgbXUgdGhldGEgNDA0NDQga2FwcGEgeGkgdGhldGEgb21pY3JvbiBldGEgNzE2OSBpb3RhIDI3MzAyIGlvdGEgZGVs
            \\dGEgdGhldGEgYWxwaGEgYWxwaGEgemV0YSBrYXBwYSAxOTAwMSBpb3RhIGRlbHRhIG51IG11IGxhbWJkYSB4aSA0NDI4MyBrYXBwYSAyMDc2MCB4
            \\aSBldGEgYWxwaGEgb21pY3JvbiAyNjMwOCBrYXBwYSBvbWljcm9uIG9taWNyb24geGkgZXBzaWxvbiB4aSBsYW1iZGEgYmV0YSBkZWx0YSBtdSBw
            \\aSBwaSB4aSBnYW1tYSBvbWljcm9uIG11IHpldGEgMjI1NTcgeGkgaW90YSA0NDEzMSBrYXBwYSBlcHNpbG9uIHpldGEgcGkgbGFtYmRhIGlvdGEg
            \\bXUgeGkgZGVsdGEgcGkgemV0YSBiZXRhIG51IGJldGEgMzM0MjEga2FwcGEgeGkgb21pY3JvbiBhbHBoYSBtdSBiZXRhIGthcHBhIDQyNjg0IGJl
            \\dGEgMzAyNzcgZXRhIHpldGEgNjg1OSBpb3RhIGlvdGEgbnUgaW90YSBldGEgNDQzNiB6ZXRhIHhpIG51IG51IDYxMTIwIGFscGhhIGthcHBhIHhp
            \\IGdhbW1hIHpldGEgZXRhIGV0YSAxOTY0MyBiZXRhIGFscGhhIGFscGhhIGdhbW1hIGxhbWJkYSB0aGV0YSBlcHNpbG9uIDMzNjk4IGRlbHRhIDM4
            \\OTYzIGthcHBhIGxhbWJkYSBtdSB6ZXRhIHRoZXRhIG11IGV0YSBwaSA1NTk3OSBnYW1tYSB4aSA0MjE0NSBvbWljcm9uIHBpIG51IG8A
            ,
            \\AFoApf9kZWx0YSBkZWx0YSB4aSBpb3RhIG9taWNyb24gZXBzaWxvbiB4aSAyMzU2MiB0aGV0YSBpb3RhIHBpIHhpIDExOTkwIGV0YSAyMTg0NyB4
            \\aSAyMTE2IGthcHAA
            ,
        },
    },
    .{
        .name = "fixed codes only",
        .window_bits = 12,
        .takeover = true,
        .messages = .{
            \\Si1JVMjPzUwuys9TSEoFcnJLQcjU3NDYAsRIT8zNBQumFhRn5gAVgdSYmpibGipUZCoUZCrklYIQWGtJBogEM4ESYBpmNIhtbGBpYgY1EChvYmBu
            \\agTVAyENzcwszBQQ/OzEgoJEhZzE3KSURIXMfKAI0CYUQZCqlNQciLMhJlfB3WBobGJgAdcHc38VRMrSzATkCIhFJiamRkZwt0JUGBkCXQc0FWoT
            \\xHCI5TAjITYbmpgYWiI7CGYO0HiIeghZkAlFyGogRoANNDQ3N7EABSoQQU1DDj2YBUjRAJOGhwpQJ0zMzNDcxBRmGzg4EnMKMmCkqamRAdh3sHgy
            \\tjAysYS4owqh2NTSEBhMYAFzS3NjqC0m5samJgj/Ay01NrE0N4e5EGgq2BwzE0ugfyBaIKFnZG4JjF+ILohIBcR9oNRgaglMUlAjwDZCVCBiGGyo
            \\qZmxsTnMUAAA
            ,
            \\gqU7oHa4cZAIBauFqEINaWjcmhiaQwXywMkdzjayMLAwgnJToRiSyCE6Lc2MLMCChqbmxsbQYDIyMwNZDeEYm5gbGqF4BO48YxNDQzOImImRqYkh
            \\LPUZWZgaIOIaGsEQNxgbmJsZIsIansohJMTGJHgUA9VBhCCqIQFgZGlhagySMjExNjCD5lpgzBqYgIMfah0wCg0NkFMUPEiQc6iJqamZAYodsAQE
            \\8ZWFpYElLMygQWAKzElmCkhRBXckxHkQNsR4oGwVIuMj+Q7CNDeCx42RkYkxUnIFajQGxgwscRlZGFoaIqIEElhQ9yClA0hQJCGSGCIwjIGlH8RN
            \\uVCXmxlZmkKthJpkbmJsCdVoYQYMzVy0QgYWmCYWBgawjAAuPY1NzU3gsmATIaYgaQB6FC3oweqQo93QwNzAQAERXKAwAJWpII2mFsAwhyUJZFNM
            \\LSwtDFCK1wJYKY7IvtC4NjAxMUEULBBB5BLJ3NAMWmQYmRsDixMkn0AUI5c4SPFqaGlgYIisGpIHofYDrTIB5ghYYWMEzAAGsHICYhTMDUZmxvBw
            \\hYnBaKSUjShOkWIaUvQVgAtbSKDCdOZCs7qRkampOUga7FBgGW9sCItD5EhGJHSwOqBuoBZ41kBURrAMYGxsYmSIWVxDfAZLa9By1sjMwgSqy8AI
            \\WMDC85mZhSk05GFVEZiGVGXGZvDUDambzQwNjQxQ8hzc01WwMg5auAEzFUZdgZJ7IBELzyfGZpYWsJLKwtLMGLV2hgUlPCNBA8zU1NLcElFkAwME
            \\WFUh1ZpAN+cDAA==
            ,
            \\ghgKr2HA/kMvIoHiRsamZkbIOQQSpYaGlpaQvGFkaGECjkYjUNkLch4A
            ,
        },
    },
    .{
        .name = "Huffman codes only",
        .window_bits = 12,
        .takeover = true,
        .messages = .{
            \\BMGBratADEXBVk4JD1gglHMJVrJizVr5RopS/Z+xFN3r89MvdkvhN34zr8P0wG9echd+Y/Gvtn5hKeayzgPfSlSum+tmtxT5thS7pYjKbim61+en
            \\X1iK6W8rCy+5i6iUv3UeybelyLelGJblsWAp8m0pTkWIJt8PUXuK6+ZUhGjy/RCW4rCWwm9echc/S7FbimEqfw9qT3HdWPyrrV/8LMUwbUshKvm2
            \\FKXM40j3+vz0i5+lGMZhHvGbJt8P8ZK7OBUhak9x3RzWUgylDBtNvh/CUnSvz0+/iMqpCHEqQkQlKlGxFN3r89MvDmspak8xrGt58K18K02+H6J7
            \\fX76haVo8v0QFv9q6xeWont9fvrFdXMqQnwr3evz0y+WYS0zUbEUu6VQi7dQi7eY5/FvxG+isluK6TGWjdpT/CyFWrzFvA1L4Wcp1m2dOBUhyjrN
            \\hevmsJbiW5nKtq40+X4Iv6k9xVK28uBUhHjJXYzr9lg4rKV4yV18K5YiKmXe5oEm3w/xsxQvuQtLcVhLUXuKeZmmlVMR4vUf
            ,
            \\BMGJjYNAEEXBVF4IHAOGcD6mZUaeo+VtJMvRb1W7OSyEZ16qVXwzcVmI3EO85S56zc9Pb5xWQvwsxDil8cFpJUS7qTenlRDtZtqGbeK0EsJCWAjP
            \\tJufhRj3ddqwEOPymGdU/BLTuvLNqPgl5vQYJ4rqcYqfhfDMS7WKOY3jys9CpGlJI3FZiDRty0Cv+fnpDfO/XHrjtBJiHh7rSLs5rYSoNy/VKl6q
            \\Vaj4JQ4LcViIdqPilzithHjLXUz7tsy0m5TmYeWb8cyyj0PimzH/y6U35rSPA73m56c32s1pJUS7ictCxGUh0rKsAyp+idNKCM8cFuJnIdK2DzsW
            \\wjNF9TjFMk7jSrs5LIRn2o2KX+Itd6Hil4jLQnjmZyHechcqfonDQqj4JR7TNnFaCTFNaSb3ED8L4Zl5nbaV00qIaRv3kW9GxS/xUq2iqB6nOK2E
            \\+FmIb8Yzh4U4rYQw/8ulN+Y0zxtxWYh6c1iIddqXmdxDFNXjFI8075xWQmzrkKg35n+59MbPQvSan5/eSNswbLzlLizEMi+PRK/5+emN3EOcVkL0
            \\mp+f3kjbsE20m7gsRFwWIvcQL9UqVPwS4/AYBizEW+7CM3MaHgvtZtnGlcNCtJu4LERcFmLZ9m0gLgvxlrvwjGfaTVE9TlFv4rIQaUgp8Za7+Gbi
            \\shC95uenNyzEY1x3cg8xPeZhIvcQp5UQcVkIFb+Eil/iZyHechfjPgwjuYc4rYRoN/WmqB6n+GZSmraZt9zFNDzWgW/GQqj4JXrNz09vTOs8bLzl
            \\LnrNz09v9Jqfn974Zsz/cumNb6aoHqc4LMRpJUS98YxnvpmXahW95uenN+rNz0JM07I8+GZyD5HSOI+85S7M/3LpjZ+F8ExRPU6Re4h6882cVkJ4
            \\5mchDgvRbg4LMc9pGnnLXXwzvebnpzdU/BL15rAQb7mLNK1b4rAQ8zA9HliIn4VYt2Un9xC5h2g3uYewECnNKz8L8c20m3azjuM0oOKXeMtdfDMv
            \\1Sp+FsJCWIhxX9PMYSFU/BIqfomXahVF9ThFXBbC/C+X3pjndd84rYSYt32dectdFNXjFPXmZyHishD1xkJ4Zln2x85LtYpvJk1jWug1Pz+94Zl2
            \\0/8B
            ,
            \\BMHRDcIwDEXRVe4IOEBpx7GopT6R1hH4I+Nzzh69nD16OVMoy8lT729exPip58UU7f5cGnVEOcpyhpjCbNtuRDnN1seLKZrZwsfH+AM=
            ,
        },
    },
    .{
        .name = "run lengths only",
        .window_bits = 12,
        .takeover = true,
        .messages = .{
            \\BMGBratADEXBVk4JD1gglHMJVrJizVr5RopS/Z+xFN3r89MvdkvhN34zr8P0wG9echd+Y/Gvtn5hKeayzgPfSlSum+tmtxT5thS7pYjKbim61+en
            \\X1iK6W8rCy+5i6iUv3UeybelyLelGJblsWAp8m0pTkWIJt8PUXuK6+ZUhGjy/RCW4rCWwm9echc/S7FbimEqfw9qT3HdWPyrrV/8LMUwbUshKvm2
            \\FKXM40j3+vz0i5+lGMZhHvGbJt8P8ZK7OBUhak9x3RzWUgylDBtNvh/CUnSvz0+/iMqpCHEqQkQlKlGxFN3r89MvDmspak8xrGt58K18K02+H6J7
            \\fX76haVo8v0QFv9q6xeWont9fvrFdXMqQnwr3evz0y+WYS0zUbEUu6VQi7dQi7eY5/FvxG+isluK6TGWjdpT/CyFWrzFvA1L4Wcp1m2dOBUhyjrN
            \\hevmsJbiW5nKtq40+X4Iv6k9xVK28uBUhHjJXYzr9lg4rKV4yV18K5YiKmXe5oEm3w/xsxQvuQtLcVhLUXuKeZmmlVMR4vUf
            ,
            \\BMGJjYNAEEXBVF4IHAOGcD6mZUaeo+VtJMvRb1W7OSyEZ16qVXwzcVmI3EO85S56zc9Pb5xWQvwsxDil8cFpJUS7qTenlRDtZtqGbeK0EsJCWAjP
            \\tJufhRj3ddqwEOPymGdU/BLTuvLNqPgl5vQYJ4rqcYqfhfDMS7WKOY3jys9CpGlJI3FZiDRty0Cv+fnpDfO/XHrjtBJiHh7rSLs5rYSoNy/VKl6q
            \\Vaj4JQ4LcViIdqPilzithHjLXUz7tsy0m5TmYeWb8cyyj0PimzH/y6U35rSPA73m56c32s1pJUS7ictCxGUh0rKsAyp+idNKCM8cFuJnIdK2DzsW
            \\wjNF9TjFMk7jSrs5LIRn2o2KX+Itd6Hil4jLQnjmZyHechcqfonDQqj4JR7TNnFaCTFNaSb3ED8L4Zl5nbaV00qIaRv3kW9GxS/xUq2iqB6nOK2E
            \\+FmIb8Yzh4U4rYQw/8ulN+Y0zxtxWYh6c1iIddqXmdxDFNXjFI8075xWQmzrkKg35n+59MbPQvSan5/eSNswbLzlLizEMi+PRK/5+emN3EOcVkL0
            \\mp+f3kjbsE20m7gsRFwWIvcQL9UqVPwS4/AYBizEW+7CM3MaHgvtZtnGlcNCtJu4LERcFmLZ9m0gLgvxlrvwjGfaTVE9TlFv4rIQaUgp8Za7+Gbi
            \\shC95uenNyzEY1x3cg8xPeZhIvcQp5UQcVkIFb+Eil/iZyHechfjPgwjuYc4rYRoN/WmqB6n+GZSmraZt9zFNDzWgW/GQqj4JXrNz09vTOs8bLzl
            \\LnrNz09v9Jqfn974Zsz/cumNb6aoHqc4LMRpJUS98YxnvpmXahW95uenN+rNz0JM07I8+GZyD5HSOI+85S7M/3LpjZ+F8ExRPU6Re4h6882cVkJ4
            \\5mchDgvRbg4LMc9pGnnLXXwzvebnpzdU/BL15rAQb7mLNK1b4rAQ8zA9HliIn4VYt2Un9xC5h2g3uYewECnNKz8L8c20m3azjuM0oOKXeMtdfDMv
            \\1Sp+FsJCWIhxX9PMYSFU/BIqfomXahVF9ThFXBbC/C+X3pjndd84rYSYt32dectdFNXjFPXmZyHishD1xkJ4Zln2x85LtYpvJk1jWug1Pz+94Zl2
            \\0/8B
            ,
            \\BMHRDcIwDEXRVe4IOEBpx7GopT6R1hH4I+Nzzh69nD16OVMoy8lT729exPip58UU7f5cGnVEOcpyhpjCbNtuRDnN1seLKZrZwsfH+AM=
            ,
        },
    },
};
