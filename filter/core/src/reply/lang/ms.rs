//! Malay.

use super::{Code, Text, text};

pub(super) const fn text_of(code: Code) -> Text {
    match code {
        Code::KeyMissing => text(
            "Kunci keidempotenan diperlukan",
            "Operasi ini memerlukan kunci keidempotenan, tetapi permintaan tidak menyertakannya. Permintaan ini tidak dilaksanakan. Cipta satu kunci, seperti UUID, bagi setiap operasi yang dihasratkan, dan hantar kunci yang sama pada setiap cubaan semula.",
        ),
        Code::KeyInvalid => text(
            "Kunci keidempotenan tidak diterima",
            "Kunci keidempotenan tidak dapat dibaca atau bentuknya tidak diterima. Permintaan ini tidak dilaksanakan. Gunakan UUID atau bentuk lain yang dinyatakan dalam dokumentasi API ini, dan hantar kunci yang sama pada setiap cubaan semula.",
        ),
        Code::KeyWeak => text(
            "Kunci keidempotenan terlalu ringkas",
            "Kunci keidempotenan terlalu ringkas hingga mungkin berulang secara kebetulan. Permintaan ini tidak dilaksanakan. Gunakan nilai rawak, seperti UUID versi 4, bagi setiap operasi baharu.",
        ),
        Code::KeyExpired => text(
            "Kunci keidempotenan telah luput",
            "Tempoh cubaan semula bagi kunci ini telah berlalu. Permintaan ini tidak dilaksanakan. Semak sama ada operasi asal telah berkuat kuasa sebelum memulakan operasi baharu dengan kunci baharu.",
        ),
        Code::TenantMissing => text(
            "Konteks akaun tiada",
            "Permintaan tidak menyatakan bagi pihak penyewa (tenant) yang mana ia dibuat. Permintaan ini tidak dilaksanakan. Semak bukti kelayakan atau pengepala penyewa yang dinyatakan dalam dokumentasi API ini, kemudian cuba semula dengan kunci yang sama.",
        ),
        Code::TenantDrift => text(
            "Konteks akaun tidak konsisten",
            "Bahagian-bahagian permintaan menamakan penyewa yang berlainan, lazimnya kerana masalah konfigurasi. Permintaan ini tidak dilaksanakan. Selaraskan nilainya, kemudian cuba semula dengan kunci yang sama.",
        ),
        Code::PrincipalMismatch => text(
            "Kunci mula-mula digunakan oleh pemanggil lain",
            "Kunci keidempotenan ini mula-mula digunakan dengan identiti pemanggil lain, contohnya sebelum bukti kelayakan bertukar. Permintaan ini tidak dilaksanakan dan jawapan terdahulu tidak dipaparkan. Cuba semula sebagai pemanggil asal; gunakan kunci baharu hanya bagi operasi baharu.",
        ),
        Code::PayloadMismatch => text(
            "Kunci telah digunakan bagi permintaan lain",
            "Permintaan terdahulu dengan kunci keidempotenan ini mempunyai kandungan yang berbeza. Permintaan ini tidak dilaksanakan dan operasi terdahulu tidak terjejas. Untuk mencuba semula, hantar permintaan asal tanpa sebarang perubahan; bagi operasi baharu, gunakan kunci baharu.",
        ),
        Code::FingerprintIncomparable => text(
            "Permintaan tidak dapat dibandingkan",
            "Permintaan terdahulu dengan kunci ini direkodkan di bawah tetapan lain, maka kedua-duanya tidak dapat dibandingkan. Permintaan ini tidak dilaksanakan. Semak hasil operasi asal sebelum menggunakan kunci baharu.",
        ),
        Code::ReplayUnavailable => text(
            "Jawapan yang direkodkan tidak tersedia",
            "Operasi bagi kunci ini telah diproses, tetapi jawapannya tidak dapat dipaparkan semula. Permintaan ini tidak dilaksanakan. Dapatkan hasilnya melalui API sebelum menggunakan kunci baharu.",
        ),
        Code::InFlight => text(
            "Operasi masih diproses",
            "Permintaan terdahulu dengan kunci ini masih diproses. Permintaan ini tidak dilaksanakan. Tunggu selama masa yang dinyatakan dalam Retry-After, kemudian hantar permintaan yang sama dengan kunci yang sama.",
        ),
        Code::OutcomeUnknown => text(
            "Hasil belum disahkan",
            "Operasi bagi kunci ini telah bermula, tetapi tidak dapat disahkan sama ada ia telah berkuat kuasa. Ia tidak dijalankan semula bagi mengelakkan pertindihan. Semak hasilnya dan jangan beralih kepada kunci baharu; pasukan sokongan boleh membantu dengan ID operasi.",
        ),
        Code::OperationClosed => text(
            "Operasi ditutup selepas semakan",
            "Pengendali perkhidmatan telah menyemak dan menutup operasi ini; kod sebab disertakan. Permintaan ini tidak dilaksanakan. Hubungi pasukan sokongan dengan ID operasi jika operasi ini masih diperlukan.",
        ),
        Code::StoreUnavailable => text(
            "Permintaan tidak dapat diterima buat masa ini",
            "Perkhidmatan yang mencegah pertindihan tidak dapat dihubungi. Permintaan ini tidak dilaksanakan. Cuba semula dengan kunci yang sama selepas masa yang dinyatakan dalam Retry-After.",
        ),
        Code::StoreRecovering => text(
            "Perlindungan pertindihan sedang dipulihkan",
            "Selepas berlaku gangguan, operasi terkini sedang disemak semula. Permintaan ini tidak dilaksanakan. Cuba semula dengan kunci yang sama selepas masa yang dinyatakan dalam Retry-After.",
        ),
        Code::StoreFull => text(
            "Had operasi tersimpan telah dicapai",
            "Buat masa ini tiada ruang untuk mendaftarkan operasi baharu bagi akaun ini atau bagi seluruh perkhidmatan. Permintaan ini tidak dilaksanakan. Cuba semula kemudian dengan kunci yang sama; jika berterusan, hubungi pasukan sokongan.",
        ),
        Code::PayloadTooLarge => text(
            "Kandungan permintaan terlalu besar",
            "Kandungan permintaan melebihi saiz yang boleh dicuba semula dengan selamat bagi operasi ini. Permintaan ini tidak dilaksanakan. Hantar kandungan yang lebih kecil, atau tanya penyedia API tentang hadnya.",
        ),
        Code::MethodOverride => text(
            "Penggantian kaedah tidak diterima",
            "Permintaan meminta kaedah HTTP lain melalui pengepala penggantian. Permintaan ini tidak dilaksanakan. Hantar terus dengan kaedah yang dihasratkan, bersama kunci keidempotenan.",
        ),
        Code::PathAmbiguous => text(
            "Laluan permintaan taksa",
            "Laluan permintaan ditulis dengan cara yang membolehkan pelayan yang berlainan mentafsirkannya sebagai sumber yang berlainan, contohnya kerana pengekodan peratus, garis miring berganda atau segmen titik. Permintaan ini tidak dilaksanakan. Hantar semula dengan laluan dalam bentuk normal, dan kekalkan kunci keidempotenan yang sama jika permintaan menyertakannya.",
        ),
        Code::ContentDigestInvalid => text(
            "Content-Digest tiada atau bentuknya tidak sah",
            "API ini membandingkan permintaan berdasarkan pengepala Content-Digest (RFC 9530), tetapi pengepala itu tiada atau bentuknya tidak sah. Permintaan ini tidak dilaksanakan. Hantar cernaan (digest) sha-256 atau sha-512 yang sah bagi kandungan permintaan dalam pengepala itu, dengan kunci yang sama.",
        ),
        Code::Misconfigured => text(
            "Masalah konfigurasi perkhidmatan",
            "Masalah konfigurasi pada pelayan menghalang pemprosesan yang selamat; puncanya bukan permintaan itu sendiri. Permintaan ini tidak dilaksanakan. Maklumkan ID cubaan kepada penyedia API, dan kekalkan kunci yang sama semasa mencuba semula.",
        ),
    }
}
