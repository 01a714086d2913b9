# ruff: noqa: RUF001 - texts as they are typed
"""Words of every script are found by themselves, with their marks and without their accents."""

import re
import unicodedata

import pytest

from agentmem import Memory
from agentmem.context.salience import terms_of
from agentmem.retrieval import HybridRetriever
from agentmem.retrieval.fusion.rrf import Fusion
from agentmem.retrieval.text.analyzer import Analyzer, foreign_share
from agentmem.testing import HashingEmbedder, WordCounter
from agentmem.types.words import clusters, fold, normalize

CASES = [
    (
        "Hindi",
        "दिल्ली",
        "मुझे अगले हफ़्ते दिल्ली जाना है",
        [
            "दल ने लड़की को बुलाया",
            "दाल और चावल बनाओ, दूध लाना",
            "कल लंदन से दोस्त आएगा",
            "आदत डालो, लिखते रहो",
        ],
    ),
    (
        "Hindi, another spelling and number",
        "हिंदी की किताब",
        "मेज़ पर हिन्दी किताबें रखी हैं",
        ["काला तवा गरम है", "कल बारिश होगी", "हड्डी में दर्द है", "कबूतर उड़ गया"],
    ),
    (
        "Nepali",
        "काठमाडौं",
        "म भोलि काठमाडौंमा भेट्छु",
        ["काठको घर राम्रो छ", "काम धेरै छ", "मलाई चिया मन पर्छ", "डाँडामा हिउँ पर्यो"],
    ),
    (
        "Marathi, by the beginning of the word",
        "मुंबई",
        "मी उद्या मुंबईला जाणार आहे",
        ["मुंगी चावली", "बाई आली", "पाऊस पडतोय", "भात खा"],
    ),
    (
        "Kurdish",
        "هەولێر",
        "سبەی دەچم بۆ هەولێرێ",
        ["باران دەبارێت", "پشیلە نوستووە", "نانم کڕی", "هەوا خۆشە"],
    ),
    (
        "Dhivehi",
        "މާލެ",
        "އަހަރެން މާދަމާ މާލެއަށް ދާނަން",
        ["މަސް ކެއިން", "ވާރޭ ވެހެނީ", "ބުޅާ ނިދައިފި", "ފެން ގެންނާށޭ"],
    ),
    (
        "Tamil",
        "சென்னை",
        "நாளை சென்னையில் கூட்டம் உள்ளது",
        ["சோறு சாப்பிட்டேன்", "சின்ன வீடு வாங்கினோம்", "மழை பெய்கிறது", "சனி அன்று விடுமுறை"],
    ),
    (
        "Bengali",
        "ঢাকা",
        "আমি পরশু ঢাকায় যাব",
        ["ঢোল বাজাও", "কাক উড়ে গেল", "ডাক এসেছে", "ভাত রান্না করো"],
    ),
    (
        "Telugu",
        "హైదరాబాద్",
        "నేను రేపు హైదరాబాద్‌కు వెళ్తాను",
        ["హోదా పెరిగింది", "దారి మూసివేశారు", "బాబు నిద్రపోయాడు", "పాలు కొనాలి"],
    ),
    (
        "Malayalam",
        "ഡൽഹി",
        "ഞാൻ നാളെ ഡൽഹിയിലേക്ക് പോകും",
        ["ഡോളർ കൂടി", "ഹിമം പെയ്തു", "ചായ വേണം", "വീട് വിറ്റു"],
    ),
    (
        "Gujarati",
        "ઘર",
        "હું સાંજે ઘરે આવીશ",
        ["ઘોડો દોડે છે", "રોટલી ગરમ છે", "પાણી લાવો", "શાળા બંધ છે"],
    ),
    (
        "Arabic without its points",
        "الرياض",
        "سَأُسافِرُ إِلى الرِّياضِ غَدًا",
        ["روضة الأطفال مغلقة", "أَرَضَ البيت كبيرة", "الجو حار اليوم", "شربنا القهوة"],
    ),
    (
        "Arabic with points, alef and tatweel in the question",
        "مَوْعِدُ الأسنــان",
        "موعد الاسنان يوم الخميس",
        ["وعد أخي بالمساعدة", "السنة القادمة أفضل", "عيد سعيد", "المدينة جميلة"],
    ),
    (
        "Persian",
        "کتاب",
        "کتاب‌ها را به كتابخانه بردم",
        ["کباب خوردیم", "آفتاب درآمد", "تاب بازی کردیم", "باران می‌آید"],
    ),
    (
        "Urdu",
        "لاہور",
        "ہم اگلے مہینے لاہور جائیں گے",
        ["لال رنگ پسند ہے", "ہوا تیز ہے", "روٹی لاؤ", "دودھ ختم ہو گیا"],
    ),
    (
        "Hebrew with points",
        "ירושלים",
        "אֲנִי נוֹסֵעַ לִירוּשָׁלַיִם מָחָר",
        ["הירח מלא", "שלום לכולם", "הים סוער", "הרשימה ארוכה"],
    ),
    (
        "Hebrew with what sticks to the word",
        "תל־אביב",
        "הפגישה תהיה בתל אביב",
        ["אבא שלי חולה", "התלמיד איחר", "האביר רוכב", "הכלב נובח"],
    ),
    (
        "Thai",
        "เชียงใหม่",
        "ฉันจะไปเชียงใหม่สัปดาห์หน้า",
        ["เขาเขียงผัก", "ไหมสีแดงสวย", "ใครมาเยี่ยม", "เมื่อวานฝนตก"],
    ),
    (
        "Lao",
        "ວຽງຈັນ",
        "ຂ້ອຍຈະໄປວຽງຈັນມື້ອື່ນ",
        ["ວັນຈັນຝົນຕົກ", "ລາວກິນເຂົ້າ", "ຈອກນ້ຳ", "ງົວກິນຫຍ້າ"],
    ),
    (
        "Khmer",
        "ភ្នំពេញ",
        "ខ្ញុំនឹងទៅភ្នំពេញនៅថ្ងៃស្អែក",
        ["ភ្នែកខ្ញុំឈឺ", "ពេលយប់ត្រជាក់", "ញ៉ាំបាយ", "ឆ្មាដេក"],
    ),
    (
        "Burmese",
        "ရန်ကုန်",
        "ကျွန်တော် မနက်ဖြန် ရန်ကုန်သွားမယ်",
        ["ရေသောက်ပါ", "ကုန်ဈေးတက်", "နေပူတယ်", "ကြောင်အိပ်နေတယ်"],
    ),
    (
        "Korean with another particle",
        "집은 어디",
        "내 집이 강남에 있어요",
        ["오늘 날씨가 좋아요", "점심을 먹었어요", "고양이가 자요", "버스를 탔어요"],
    ),
    (
        "Japanese, half width and full",
        "ﾎﾃﾙ",
        "京都のホテルを予約しました",
        ["ホットな話題", "テレビを見る", "ルールを守る", "雨が降った"],
    ),
    (
        "Chinese with a character of a rare plane",
        "𠮷先生在哪",
        "𠮷野家对面住着𠮷先生",
        ["吉他很贵", "先走一步", "生活不易", "今天下雨"],
    ),
    (
        "Greek",
        "ΑΘΗΝΑ",
        "Θα πάμε στην Αθήνα αύριο",
        ["Ο αδελφός μου κοιμάται", "Πήρα ψωμί", "Η θάλασσα είναι ήρεμη", "Άνοιξε το παράθυρο"],
    ),
    (
        "Greek without accents",
        "μουσειο",
        "Το μουσείο κλείνει στις πέντε",
        ["Η μουσική είναι δυνατή", "Μου αρέσει ο καφές", "Το σχολείο άνοιξε", "Βρέχει σήμερα"],
    ),
    (
        "Russian",
        "елка",
        "Ёлку купили вчера на рынке",
        ["Ел суп", "Колка дров", "Белка бежит", "Ёжик спит"],
    ),
    (
        "Russian with stress marks",
        "замок",
        "Мы видели старый за́мок у реки",
        ["Замёрз пруд", "Закат красивый", "Мокрый снег", "Кот спит"],
    ),
    (
        "Ukrainian",
        "п’ять яблук",
        "Купи пʼять яблук на базарі",
        ["Яблуня цвіте", "Опять дощ", "Пити каву", "Кіт спить"],
    ),
    (
        "Armenian",
        "ԵՐԵՎԱՆ",
        "Վաղը գնում եմ Երևանում հանդիպման",
        ["Երեկ անձրև էր", "Վանա լիճը գեղեցիկ է", "Հաց գնեցի", "Կատուն քնած է"],
    ),
    (
        "Georgian",
        "თბილისი",
        "ხვალ თბილისში მივდივარ",
        ["თბილი ამინდია", "პური ვიყიდე", "სილა ყვითელია", "კატა იძინებს"],
    ),
    (
        "Amharic",
        "አዲስ አበባ",
        "ነገ በአዲስ አበባ እንገናኛለን",
        ["አበባው ቀይ ነው", "ዳቦ ገዛሁ", "ድመቷ ተኛች", "ዝናብ ዘነበ"],
    ),
    (
        "Turkish",
        "istanbul",
        "Yarın İSTANBUL'A gidiyorum",
        ["İş yerim kapalı", "Stadyum dolu", "Ekmek aldım", "Kedi uyuyor"],
    ),
    (
        "Turkish without dots",
        "ısparta gulleri",
        "Isparta gülleri çok güzel kokuyor",
        ["Ispanak pişirdim", "Gülmek iyidir", "Parti yarın", "Kar yağdı"],
    ),
    (
        "Vietnamese, as exact as it is asked",
        "bò",
        "Tối nay nấu bò kho",
        ["Bố đi làm", "Bơ rất béo", "Bộ phim hay", "Bỏ rác đi"],
    ),
    (
        "Vietnamese without marks",
        "da nang",
        "Tuần sau tôi bay ra Đà Nẵng",
        ["Năng lượng mới", "Da tôi khô", "Nắng quá", "Mèo đang ngủ"],
    ),
    (
        "Polish",
        "lodz",
        "Jutro jadę do Łodzi, a potem Łódź",
        ["Lody są zimne", "Ludzie czekają", "Kupiłem chleb", "Kot śpi"],
    ),
]


def positions(texts, question, retriever=None):
    """Where each message stands in the order in which it is found."""
    with Memory.open(
        "sqlite://", counter=WordCounter(), retriever=retriever or HybridRetriever()
    ) as memory:
        session = memory.session("s")
        for text in texts:
            session.append("user", text)
        memory.wait_for_index(timeout_s=10)
        return [hit.stored.position for hit in session.search(question)]


@pytest.mark.parametrize(
    ("question", "right", "others"), [c[1:] for c in CASES], ids=[c[0] for c in CASES]
)
@pytest.mark.parametrize("place", [0, 4])
def test_the_right_message_is_found_first_by_words_alone(question, right, others, place):
    texts = [*others[:place], right, *others[place:]]
    assert positions(texts, question)[0] == place + 1


@pytest.mark.parametrize(("question", "right", "others"), [c[1:] for c in CASES[:1]], ids=["Hindi"])
def test_an_embedder_that_cannot_read_a_script_has_no_say_in_it(question, right, others):
    assert positions([right, *others], question, HybridRetriever(HashingEmbedder()))[0] == 1


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Montréal", "Montreal"),
        ("Zürich", "Zurich"),
        ("İstanbul", "istanbul"),
        ("ISPARTA", "ısparta"),
        ("ёлка", "елка"),
        ("Straße", "STRASSE"),
        ("smørrebrød", "smorrebrod"),
        ("Ærø", "aero"),
        ("œuvre", "oeuvre"),
        ("Łódź", "lodz"),
        ("canción", "cancion"),
        ("São Paulo", "sao paulo"),
        ("mangé", "mange"),
        ("Αθήνα", "ΑΘΗΝΑ"),
        ("Đà Nẵng", "da nang"),
        ("naïve café", "naive cafe"),
        ("plzeň", "plzen"),
        ("كِتَاب", "كتاب"),
        ("أحمد", "احمد"),
        ("שָׁלוֹם", "שלום"),
        ("हाँ हिन्दी", "हां हिंदी"),
        ("फ़िल्म", "फिल्म"),
        ("می‌خواهم", "میخواهم"),
        ("२०२३", "2023"),
        ("résumé", unicodedata.normalize("NFD", "résumé")),
    ],
)
def test_accents_are_folded_both_ways(one, other):
    filler = ["the train is late", "bread and butter", "a cat sleeps", "it rains"]
    for said, asked in ((one, other), (other, one)):
        assert positions([said, *filler], asked)[:1] == [1]


def test_umlauts_may_be_typed_as_two_letters():
    filler = ["Das Wetter ist schlecht und kalt", "Wir haben ein Brot", "Die Katze schläft"]
    for said, asked in (("München ist schön", "Muenchen"), ("Muenchen ist nicht weit", "München")):
        assert positions([*filler, said], f"wo ist {asked}")[0] == 4


def test_who_types_the_accent_finds_it_first():
    texts = ["the resume of the talks", "the résumé of Anna"]
    assert positions(texts, "résumé")[0] == 2
    assert set(positions(texts, "resume")) == {1, 2}


def test_marks_belong_to_their_letters():
    assert "दिल्ली" in normalize("दिल्ली")
    assert clusters("ទី២ភ្នំ") == ["ទី", "២", "ភ្នំ"]
    terms = Analyzer().passage("दिल्ली").terms
    assert len(terms) == 1
    assert all(len(term) > 2 for term in terms)


def test_words_with_marks_are_parts_of_what_is_kept_whole():
    assert "zurich" in Analyzer().passage("Zürich/Berlin 2023").terms


def test_stop_words_of_other_scripts_are_left_out():
    analyzer = Analyzer()
    assert analyzer.passage("मैं का के में है").terms == []
    assert analyzer.passage("من في على هذا").terms == []
    assert analyzer.passage("της και το").terms == []


def test_letters_that_only_look_accented_stay():
    assert fold("Йод") == "йод"
    assert fold("Їжак") == "їжак"


def test_meaning_counts_by_the_share_of_letters_that_the_embedder_was_made_for():
    assert foreign_share("Montréal, 12 Łódź") == 0
    assert foreign_share("दिल्ली") == 1
    assert foreign_share("дом ab ab") == pytest.approx(3 / 7)
    assert Fusion().dense_weight("दिल्ली कहाँ है") == 0
    assert Fusion(unspaced=1).dense_weight("दिल्ली") == 1


def test_summaries_see_the_same_words():
    assert terms_of("दिल्ली जाना") == ["दिल्ली", "जाना"]
    assert not any(re.fullmatch("[क-ह]", term) for term in terms_of("हिंदी में दिल्ली"))
