//! Vietnamese.

use super::{Code, Text, text};

pub(super) const fn text_of(code: Code) -> Text {
    match code {
        Code::KeyMissing => text(
            "Cần có khóa lũy đẳng",
            "Thao tác này cần một khóa lũy đẳng (idempotency key), nhưng yêu cầu không kèm theo khóa. Yêu cầu này chưa được thực hiện. Hãy tạo một khóa cho mỗi thao tác dự định, chẳng hạn một UUID, và gửi cùng khóa đó trong mọi lần thử lại.",
        ),
        Code::KeyInvalid => text(
            "Khóa lũy đẳng không được chấp nhận",
            "Không đọc được khóa lũy đẳng hoặc khóa không đúng dạng được chấp nhận. Yêu cầu này chưa được thực hiện. Hãy dùng UUID hoặc dạng khác nêu trong tài liệu của API này, và gửi cùng khóa đó trong mọi lần thử lại.",
        ),
        Code::KeyWeak => text(
            "Khóa lũy đẳng quá đơn giản",
            "Khóa lũy đẳng quá đơn giản nên có thể ngẫu nhiên bị trùng. Yêu cầu này chưa được thực hiện. Hãy dùng một giá trị ngẫu nhiên, chẳng hạn UUID phiên bản 4, cho mỗi thao tác mới.",
        ),
        Code::KeyExpired => text(
            "Khóa lũy đẳng đã hết hạn",
            "Đã quá thời hạn có thể thử lại với khóa này. Yêu cầu này chưa được thực hiện. Hãy kiểm tra xem thao tác ban đầu đã có hiệu lực hay chưa trước khi bắt đầu thao tác mới với khóa mới.",
        ),
        Code::TenantMissing => text(
            "Thiếu thông tin tài khoản",
            "Yêu cầu không cho biết được gửi thay mặt bên thuê (tenant) nào. Yêu cầu này chưa được thực hiện. Hãy kiểm tra thông tin xác thực hoặc tiêu đề về bên thuê nêu trong tài liệu của API này, rồi thử lại với cùng khóa.",
        ),
        Code::TenantDrift => text(
            "Thông tin tài khoản không nhất quán",
            "Các phần của yêu cầu chỉ đến những bên thuê khác nhau, thường do lỗi cấu hình. Yêu cầu này chưa được thực hiện. Hãy làm cho chúng khớp nhau, rồi thử lại với cùng khóa.",
        ),
        Code::PrincipalMismatch => text(
            "Khóa đã được bên gọi khác dùng trước",
            "Khóa lũy đẳng này được dùng lần đầu dưới danh tính bên gọi khác, ví dụ trước khi thông tin xác thực thay đổi. Yêu cầu này chưa được thực hiện và câu trả lời trước đó không được hiển thị. Hãy thử lại với tư cách bên gọi ban đầu; chỉ dùng khóa mới cho thao tác mới.",
        ),
        Code::PayloadMismatch => text(
            "Khóa đã dùng cho một yêu cầu khác",
            "Một yêu cầu trước đó với khóa lũy đẳng này có nội dung khác. Yêu cầu này chưa được thực hiện và thao tác trước đó không bị ảnh hưởng. Nếu thử lại, hãy gửi đúng yêu cầu ban đầu; nếu là thao tác mới, hãy dùng khóa mới.",
        ),
        Code::FingerprintIncomparable => text(
            "Không thể so sánh yêu cầu",
            "Yêu cầu trước đó với khóa này được ghi lại theo thiết lập khác nên không thể so sánh hai yêu cầu. Yêu cầu này chưa được thực hiện. Hãy kiểm tra kết quả của thao tác ban đầu trước khi dùng khóa mới.",
        ),
        Code::ReplayUnavailable => text(
            "Không thể cung cấp lại câu trả lời đã ghi",
            "Thao tác ứng với khóa này đã được xử lý, nhưng không thể hiển thị lại câu trả lời. Yêu cầu này chưa được thực hiện. Hãy tra cứu kết quả qua API trước khi dùng khóa mới.",
        ),
        Code::InFlight => text(
            "Thao tác vẫn đang được xử lý",
            "Một yêu cầu trước đó với khóa này vẫn đang được xử lý. Yêu cầu này chưa được thực hiện. Hãy chờ hết thời gian ghi trong Retry-After, rồi gửi lại đúng yêu cầu đó với cùng khóa.",
        ),
        Code::OutcomeUnknown => text(
            "Chưa xác nhận được kết quả",
            "Thao tác ứng với khóa này đã bắt đầu, nhưng chưa thể xác nhận đã có hiệu lực hay chưa. Hệ thống không thực hiện lại để tránh trùng lặp. Hãy kiểm tra kết quả và đừng chuyển sang khóa mới; bộ phận hỗ trợ có thể giúp khi có mã thao tác.",
        ),
        Code::OperationClosed => text(
            "Thao tác đã được xem xét và đóng lại",
            "Đơn vị vận hành dịch vụ đã xem xét và đóng thao tác này; mã lý do được kèm theo. Yêu cầu này chưa được thực hiện. Nếu vẫn cần thao tác này, hãy liên hệ bộ phận hỗ trợ và cung cấp mã thao tác.",
        ),
        Code::StoreUnavailable => text(
            "Hiện chưa thể tiếp nhận yêu cầu",
            "Không kết nối được với dịch vụ ngăn thao tác trùng lặp. Yêu cầu này chưa được thực hiện. Hãy thử lại với cùng khóa sau thời gian ghi trong Retry-After.",
        ),
        Code::StoreRecovering => text(
            "Cơ chế chống trùng lặp đang khôi phục",
            "Sau một sự cố gián đoạn, các thao tác gần đây đang được kiểm tra lại. Yêu cầu này chưa được thực hiện. Hãy thử lại với cùng khóa sau thời gian ghi trong Retry-After.",
        ),
        Code::StoreFull => text(
            "Đã đạt giới hạn số thao tác được lưu",
            "Hiện không còn chỗ để ghi nhận thao tác mới cho tài khoản này hoặc cho toàn bộ dịch vụ. Yêu cầu này chưa được thực hiện. Hãy thử lại sau với cùng khóa; nếu tình trạng kéo dài, hãy liên hệ bộ phận hỗ trợ.",
        ),
        Code::PayloadTooLarge => text(
            "Nội dung yêu cầu quá lớn",
            "Phần thân của yêu cầu lớn hơn mức có thể thử lại an toàn đối với thao tác này. Yêu cầu này chưa được thực hiện. Hãy gửi phần thân nhỏ hơn, hoặc hỏi nhà cung cấp API về giới hạn.",
        ),
        Code::MethodOverride => text(
            "Không chấp nhận ghi đè phương thức",
            "Yêu cầu muốn dùng một phương thức HTTP khác thông qua tiêu đề ghi đè. Yêu cầu này chưa được thực hiện. Hãy gửi trực tiếp bằng phương thức mong muốn, kèm theo khóa lũy đẳng.",
        ),
        Code::PathAmbiguous => text(
            "Đường dẫn của yêu cầu không rõ ràng",
            "Đường dẫn của yêu cầu được viết theo cách mà các máy chủ khác nhau có thể hiểu thành những tài nguyên khác nhau, ví dụ do mã hóa phần trăm, dấu gạch chéo kép hoặc các đoạn chỉ gồm dấu chấm. Yêu cầu này chưa được thực hiện. Hãy gửi lại với đường dẫn ở dạng chuẩn hóa, và giữ nguyên khóa lũy đẳng nếu yêu cầu có khóa.",
        ),
        Code::ContentDigestInvalid => text(
            "Thiếu Content-Digest hoặc giá trị sai định dạng",
            "API này so sánh các yêu cầu theo tiêu đề Content-Digest (RFC 9530), nhưng tiêu đề này bị thiếu hoặc sai định dạng. Yêu cầu này chưa được thực hiện. Hãy gửi giá trị băm sha-256 hoặc sha-512 hợp lệ của phần thân trong tiêu đề đó, với cùng khóa.",
        ),
        Code::Misconfigured => text(
            "Dịch vụ gặp vấn đề về cấu hình",
            "Một vấn đề cấu hình ở phía máy chủ khiến yêu cầu không thể được xử lý an toàn; nguyên nhân không nằm ở yêu cầu. Yêu cầu này chưa được thực hiện. Hãy báo mã lần thử cho nhà cung cấp API và giữ nguyên khóa khi thử lại.",
        ),
    }
}
