//! Indonesian.

use super::{Code, Text, text};

pub(super) const fn text_of(code: Code) -> Text {
    match code {
        Code::KeyMissing => text(
            "Kunci idempotensi diperlukan",
            "Operasi ini memerlukan kunci idempotensi, tetapi permintaan tidak menyertakannya. Permintaan ini tidak dijalankan. Buat satu kunci, misalnya UUID, untuk setiap operasi yang dimaksud, lalu kirim kunci yang sama pada setiap percobaan ulang.",
        ),
        Code::KeyInvalid => text(
            "Kunci idempotensi tidak diterima",
            "Kunci idempotensi tidak dapat dibaca atau formatnya tidak diterima. Permintaan ini tidak dijalankan. Gunakan UUID atau format lain yang tercantum dalam dokumentasi API ini, lalu kirim kunci yang sama pada setiap percobaan ulang.",
        ),
        Code::KeyWeak => text(
            "Kunci idempotensi terlalu sederhana",
            "Kunci idempotensi terlalu sederhana sehingga dapat terulang secara kebetulan. Permintaan ini tidak dijalankan. Gunakan nilai acak, misalnya UUID versi 4, untuk setiap operasi baru.",
        ),
        Code::KeyExpired => text(
            "Kunci idempotensi kedaluwarsa",
            "Jangka waktu percobaan ulang untuk kunci ini telah lewat. Permintaan ini tidak dijalankan. Periksa apakah operasi semula sudah berlaku sebelum memulai operasi baru dengan kunci baru.",
        ),
        Code::TenantMissing => text(
            "Konteks akun tidak ada",
            "Permintaan tidak menyebutkan atas nama penyewa (tenant) mana dibuat. Permintaan ini tidak dijalankan. Periksa kredensial atau header penyewa yang tercantum dalam dokumentasi API ini, lalu coba lagi dengan kunci yang sama.",
        ),
        Code::TenantDrift => text(
            "Konteks akun tidak konsisten",
            "Bagian-bagian permintaan menyebutkan penyewa yang berbeda, biasanya karena masalah konfigurasi. Permintaan ini tidak dijalankan. Samakan nilainya, lalu coba lagi dengan kunci yang sama.",
        ),
        Code::PrincipalMismatch => text(
            "Kunci lebih dahulu dipakai pemanggil lain",
            "Kunci idempotensi ini pertama kali dipakai dengan identitas pemanggil lain, misalnya sebelum kredensial berganti. Permintaan ini tidak dijalankan dan jawaban sebelumnya tidak ditampilkan. Coba lagi sebagai pemanggil semula; gunakan kunci baru hanya untuk operasi baru.",
        ),
        Code::PayloadMismatch => text(
            "Kunci sudah dipakai untuk permintaan lain",
            "Permintaan sebelumnya dengan kunci idempotensi ini memiliki isi yang berbeda. Permintaan ini tidak dijalankan dan operasi sebelumnya tidak terpengaruh. Untuk mencoba ulang, kirim permintaan semula persis seperti aslinya; untuk operasi baru, gunakan kunci baru.",
        ),
        Code::FingerprintIncomparable => text(
            "Permintaan tidak dapat dibandingkan",
            "Permintaan sebelumnya dengan kunci ini dicatat dengan pengaturan lain sehingga keduanya tidak dapat dibandingkan. Permintaan ini tidak dijalankan. Periksa hasil operasi semula sebelum menggunakan kunci baru.",
        ),
        Code::ReplayUnavailable => text(
            "Jawaban tercatat tidak tersedia",
            "Operasi untuk kunci ini sudah diproses, tetapi jawabannya tidak dapat ditampilkan lagi. Permintaan ini tidak dijalankan. Cari hasilnya melalui API sebelum menggunakan kunci baru.",
        ),
        Code::InFlight => text(
            "Operasi masih berlangsung",
            "Permintaan sebelumnya dengan kunci ini masih diproses. Permintaan ini tidak dijalankan. Tunggu selama waktu yang tertera di Retry-After, lalu kirim permintaan yang sama dengan kunci yang sama.",
        ),
        Code::OutcomeUnknown => text(
            "Hasil belum terkonfirmasi",
            "Operasi untuk kunci ini sudah dimulai, tetapi belum dapat dipastikan apakah sudah berlaku. Operasi tidak dijalankan lagi agar tidak terjadi duplikasi. Periksa hasilnya dan jangan beralih ke kunci baru; tim dukungan dapat membantu dengan ID operasi.",
        ),
        Code::OperationClosed => text(
            "Operasi ditutup setelah peninjauan",
            "Pengelola layanan telah meninjau dan menutup operasi ini; kode alasan disertakan. Permintaan ini tidak dijalankan. Hubungi tim dukungan dengan ID operasi jika operasi ini masih diperlukan.",
        ),
        Code::StoreUnavailable => text(
            "Permintaan belum dapat diterima saat ini",
            "Layanan pencegah duplikasi tidak dapat dihubungi. Permintaan ini tidak dijalankan. Coba lagi dengan kunci yang sama setelah waktu yang tertera di Retry-After.",
        ),
        Code::StoreRecovering => text(
            "Pencegahan duplikasi sedang dipulihkan",
            "Setelah terjadi gangguan, operasi-operasi terbaru sedang diperiksa kembali. Permintaan ini tidak dijalankan. Coba lagi dengan kunci yang sama setelah waktu yang tertera di Retry-After.",
        ),
        Code::StoreFull => text(
            "Batas operasi tersimpan tercapai",
            "Saat ini tidak ada ruang untuk mencatat operasi baru bagi akun ini atau seluruh layanan. Permintaan ini tidak dijalankan. Coba lagi nanti dengan kunci yang sama; jika terus terjadi, hubungi tim dukungan.",
        ),
        Code::PayloadTooLarge => text(
            "Isi permintaan terlalu besar",
            "Isi permintaan melebihi ukuran yang dapat dicoba ulang dengan aman untuk operasi ini. Permintaan ini tidak dijalankan. Kirim isi yang lebih kecil, atau tanyakan batasnya kepada penyedia API.",
        ),
        Code::MethodOverride => text(
            "Penggantian metode tidak diterima",
            "Permintaan meminta metode HTTP lain melalui header pengganti. Permintaan ini tidak dijalankan. Kirim langsung dengan metode yang dimaksud, disertai kunci idempotensi.",
        ),
        Code::PathAmbiguous => text(
            "Jalur permintaan ambigu",
            "Jalur permintaan ditulis sedemikian rupa sehingga server yang berbeda dapat membacanya sebagai sumber daya yang berbeda, misalnya karena pengodean persen, garis miring ganda, atau segmen titik. Permintaan ini tidak dijalankan. Kirim ulang dengan jalur dalam bentuk normal, dan pakai kunci idempotensi yang sama jika permintaan menyertakannya.",
        ),
        Code::ContentDigestInvalid => text(
            "Content-Digest tidak ada atau formatnya salah",
            "API ini membandingkan permintaan berdasarkan header Content-Digest (RFC 9530), tetapi header tersebut tidak ada atau formatnya salah. Permintaan ini tidak dijalankan. Kirim digest sha-256 atau sha-512 yang valid dari isi permintaan dalam header tersebut, dengan kunci yang sama.",
        ),
        Code::Misconfigured => text(
            "Masalah konfigurasi layanan",
            "Masalah konfigurasi di sisi server membuat permintaan tidak dapat diproses dengan aman; penyebabnya bukan permintaan itu sendiri. Permintaan ini tidak dijalankan. Beri tahu penyedia API tentang ID percobaan, dan pakai kunci yang sama saat mencoba lagi.",
        ),
    }
}
