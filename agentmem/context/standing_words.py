# ruff: noqa: RUF001 - other alphabets have letters like ours
"""
Words of statements that bind, inform, tell the state of the work, or a preference, by language.

English, German, French, Spanish, Italian, Portuguese, Dutch, Russian, Chinese, Japanese, Korean,
Arabic, Hindi and Turkish. A statement in another language stands by its numbers and names.
"""

from dataclasses import dataclass
from typing import Final

from agentmem.types.words import normalize


@dataclass(frozen=True, slots=True)
class Cues:
    """Words and phrases that mean one kind of statement."""

    words: frozenset[str]
    phrases: tuple[str, ...]
    """Parts of a text of words with one space around each, or of an unspaced script."""

    def num(self, words: frozenset[str], text: str) -> int:
        """Return how many of them are among *words* or in *text*, the words with spaces."""
        found = len(self.words & words)
        return found + sum(phrase in text for phrase in self.phrases)


def _cues(words: str, phrases: str, unspaced: str = "") -> Cues:
    spaced = tuple(f" {phrase.strip()} " for phrase in _known(phrases).split("|"))
    return Cues(frozenset(_known(words).split()), spaced + tuple(_known(unspaced).split()))


def _known(text: str) -> str:
    return normalize(text).casefold()


BINDING: Final = _cues(
    # English
    "never always must mustn forbidden prohibited require requires required only nothing nobody"
    " shall unless until deadline due cap capped limit limited maximum max minimum min budget"
    " approval approve approving approves allergic allergy confidential secret ensure refuse"
    " escalate stop consent permission cannot mandatory strictly ever keep avoid except stay stays"
    # German
    " nie niemals immer muss müssen musst darf dürfen darfst verboten nur mindestens höchstens"
    " frist keinesfalls zwingend genehmigung erlaubnis allergisch allergie verträgt niemand nichts"
    " ausnahmslos spätestens vertraulich"
    # French
    " jamais toujours doit doivent dois interdit interdite seulement obligatoire délai maximum"
    " personne aucun aucune dépasser accord allergique allergie rien confidentiel uniquement"
    # Spanish, Italian, Portuguese
    " nunca siempre debe deben debes prohibido prohibida solo sólo obligatorio máximo mínimo plazo"
    " nadie ningún ninguna nada alérgico alérgica alergia confidencial jamás"
    " mai sempre deve devono devi vietato vietata soltanto massimo minimo scadenza nessuno niente"
    " allergico allergica sempre deve devem proibido somente apenas prazo ninguém alérgica"
    # Dutch
    " nooit altijd moet moeten mag mogen verboden alleen hoogstens minstens termijn niemand"
    # Russian
    " никогда всегда нельзя обязательно только должен должна должно должны запрещено запрещается"
    " срок никому никто ничего строго аллергия максимум минимум разрешения согласия"
    # Arabic
    " أبدا دائما يجب ممنوع فقط يمنع حساسية إلا"
    # Hindi, Turkish
    " कभी हमेशा जरूरी मना केवल सिर्फ अधिकतम एलर्जी"
    " asla her zaman yasak sadece mutlaka gerekir zorunlu fazla alerjisi",
    "at most|at least|no more than|no later than|under no circumstances|do not|don t|may not"
    "|not allowed|at all times|has to|have to|need to|needs|free of|without|nobody but|no one"
    "|the most|whatever happens|between you and me|no longer than"
    "|auf keinen fall|unter keinen umständen|ohne dass|muss bis|nicht mehr|dürfen nicht"
    "|au plus|au moins|sans accord|en aucun cas|quoi qu il|ne pas|sans la"
    "|como máximo|al menos|sin permiso|pase lo que pase|tiene que|en ningún caso|no debe"
    "|al massimo|almeno|in nessun caso|no máximo|pelo menos|em hipótese alguma|op geen enkele"
    "|не больше|не менее|ни в коем случае|не более|что бы ни|нужно|не позднее|لا تفعل|لا يجوز",
    # Chinese
    "必须 必須 必需 不要 不得 禁止 严禁 只能 不能 不许 不准 不可 最多 最少 至少 截止 预算 預算 绝对"
    " 千万 务必 一定要 过敏 過敏 不得超过 超过 超過 之前必 任何时候 都得 都按 只有"
    # Japanese, with stems of inflected forms
    " 絶対 ないで てはいけ てはなら ならない こと。 期限 必ず 以内 以降 最大 まで アレルギー 許可"
    " 同意なし 禁じ"
    # Korean
    " 절대 반드시 항상 하지마 지마세요 마세요 안됩니다 금지 최대 최소 까지 이내 알레르기 동의없이"
    # Arabic and Hindi, with attached particles
    " لاتـ",
)
STATE: Final = _cues(
    "current currently now remaining remains blocked awaiting waiting decided agreed chose chosen"
    " settled based phase branch branched todo progress stuck halfway next left pending step"
    " aktuell entschieden nächstes nächste nächster gerade warte wartet beschlossen erledigt stand"
    " étape décidé choisi prochaine prochain reste attends bloqués bloqué maintenant actuellement"
    " decidido elegido siguiente falta espero ahora actualmente parados pendiente queda"
    " prossimo deciso adesso attualmente próximo decidimos agora beslist volgende"
    " решил решила решили решено сейчас следующий следующая осталось жду ждём застряли пока выбрали"
    " الآن التالي قررنا अभी अगला तय şimdi sonraki karar",
    "in progress|open question|working on|we are in|we are on|we are at|waiting for|what is left"
    "|en cours|pour l instant|ahora mismo|warten auf|als nächstes",
    "决定 決定 目前 下一步 正在 进行中 現在 現時点 次の 次は 次に 定下来 还没 等待 在等 现在卡 卡在"
    " 待ち 待って 途中 決めま 決まり 止まって 지금 현재 다음 결정 대기 진행",
)
PREFERENCE: Final = _cues(
    "prefer prefers preferred preference preferably favourite favorite dislike dislikes hate hates"
    " rather user call answers replies responses style tone terse concise format units"
    " lieber bevorzuge bevorzugt liebsten nenn mag möchte ausstehen"
    " préfère préfères aime déteste plutôt appelle prefiero prefiere gusta gustan odio llámame"
    " soporto preferisco piace odio prefiro gosto detesto liever voorkeur"
    " предпочитаю предпочитает нравится люблю ненавижу зови терпеть лучше أفضل أحب पसंद tercih",
    "i like|i love|i want|i d like|wants|likes|loves|instead of|can t stand|cannot stand"
    "|please use|please answer|please write|please send|call me|over|no bullet",
    "喜欢 喜歡 更愿意 偏好 最爱 请用 请叫我 叫我 不吃 讨厌 受不了 给我的 习惯"
    " 好き がいい ほうが お願いします てほしい 苦手 嫌い 呼んで 좋아 싫어 선호 불러",
)
INFORMING: Final = _cues(
    # What things are called, where and whose they are
    "called named name codename code number address phone email birthday owner owns owned belongs"
    " region host hosted runs lives located version password account port url deadline date costs"
    " price moved lands contact booked reservation allergic born mounted database server file"
    " monday tuesday wednesday thursday friday saturday sunday january february march april june"
    " july august september october november december"
    " heißt nummer adresse geburtstag liegt wohnt sitzt lautet kostet läuft konto gehört"
    " montag dienstag mittwoch donnerstag freitag samstag sonntag"
    " appelle numéro adresse anniversaire habite trouve coûte compte bureau rue"
    " lundi mardi mercredi jeudi vendredi samedi dimanche"
    " llama número dirección cumpleaños vive cuesta cuenta está calle despacho"
    " lunes martes miércoles jueves viernes sábado domingo"
    " chiama numero indirizzo compleanno abita costa chama endereço aniversário mora heet woont"
    " зовут номер адрес телефон живёт живет лежит стоит счёт офис улице день"
    " понедельник вторник среду четверг пятницу субботу воскресенье"
    " اسمه اسمها رقم عنوان يسكن नाम नंबर पता जन्मदिन adı numarası adresi doğum",
    "moved to|based in|s appelle|se llama|si chiama",
    "名字 名叫 叫做 联系人 地址 电话 手机 号码 生日 住在 负责人 端口 供应商 班主任 尾号 密码 账号"
    " 价格 星期 周一 周二 周三 周四 周五 周六 周日"
    " 名前 住所 電話 誕生日 番号 担当 事務所 さんで に住 月曜 火曜 水曜 木曜 金曜 土曜 日曜"
    " 이름 주소 전화 번호 생일 담당",
)
